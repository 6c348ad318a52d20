"""What users type is printed as they typed it, on every console, and can be copied to a shell."""

import ast
import dataclasses
import functools
import importlib
import io
import os
import pathlib
import shlex
import subprocess
import sys
import typing
from collections.abc import Callable
from typing import Any

import jax
import pytest
from rich.table import Table
from tyro.constructors import PrimitiveConstructorSpec

import mmrl
from mmrl.__main__ import COMMANDS, main
from mmrl.commands import train
from mmrl.commands.options import parse
from mmrl.commands.process import replace_unknown
from mmrl.commands.terminal import open_console
from mmrl.runs import Run, reopen, saved_setup, saved_sweep
from mmrl.runs.export import export
from mmrl.runs.files import expand
from mmrl.runs.results import append
from mmrl.runs.shell import command_line
from mmrl.runs.zoo import load
from tests.helpers.runs import ARGUMENTS, SETUP

ENV = "probe-Memory-v0"
FILES = sorted(pathlib.Path(mmrl.__file__).parent.rglob("*.py"))
NAMES = ("x[red]y[/red]", "sweep[/b]", "a:smile:b", "my run", "it's", "$HOME;ls", "läuft", "\\[b]")
OVER = ["--over", "gamma", "0.5", "0.9"]


@pytest.fixture(autouse=True)
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Run every test in an empty folder, which is also the user's home."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_strings_are_not_read_as_markup(name: str):
    console = open_console(file=io.StringIO(), width=80)
    table = Table(name, title=name)
    table.add_row(name)
    console.print(name, table)
    assert console.file.getvalue().count(name) == 4  # type: ignore[attr-defined]


def test_no_command_opens_another_console():
    users = [path for path in FILES if "rich.console" in path.read_text("utf-8")]
    calls = [path.name for path in users if " Console(" in path.read_text("utf-8")]
    assert users and calls == ["terminal.py"]


@pytest.mark.parametrize("name", [*NAMES, "-x", "--", "~/x", "~"])
def test_a_command_to_copy_names_the_same_path(name: str):
    path = pathlib.Path(name)
    program, command, words = shlex.split(command_line("evaluate", path))
    assert (program, command) == ("mmrl", "evaluate") and not words.startswith("-")
    assert expand(words) == path


UNSHOWN = ("x\ty", "x\ny", "a\rb", "\x1b[31m", "\a\b'\\", "\udcff", "a\u202eb", "λ")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_command_to_copy_shows_each_byte_of_a_path(
    encoding: str, stdout: Callable[[str], io.TextIOWrapper]
):
    stdout(encoding)
    line = command_line("evaluate", *map(pathlib.Path, UNSHOWN))
    assert line.isprintable() and line.isascii() == (encoding == "ascii")
    shell = f"mmrl() {{ printf '%s\\0' \"$@\"; }}; {line}"
    process = subprocess.run(["bash", "-c", shell], capture_output=True).stdout
    assert process.split(b"\0")[1:-1] == [os.fsencode(name) for name in UNSHOWN]


@pytest.mark.parametrize(("command", "words"), [("train", []), ("sweep", OVER)])
@pytest.mark.parametrize("name", NAMES[:2])
def test_a_stopped_run_names_its_folder(
    command: str,
    words: list[str],
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(train, "watch" if command == "train" else "watch_sweep", stop)
    assert main([command, ENV, *ARGUMENTS, *words, "--out", f"{name} 1", "--devices=1"]) == 130
    output = capsys.readouterr()
    assert f"→  {name} 1\n" in output.out
    assert f"--out {shlex.quote(f'{name} 1')} --devices 1\n" in output.err


# Paths


def option_classes() -> list[type]:
    modules = [importlib.import_module(f"mmrl.commands.{name}") for name in COMMANDS]
    own = [x for module in modules for x in vars(module).values() if dataclasses.is_dataclass(x)]
    return [x for x in own if isinstance(x, type) and x.__module__.startswith("mmrl.commands")]


def test_every_path_of_every_command_may_start_at_home():
    paths = 0
    for options in option_classes():
        for name, kind in typing.get_type_hints(options, include_extras=True).items():
            if "pathlib" in str(kind):
                paths += 1
                kinds = [kind, *typing.get_args(kind)]
                parts = [x for each in kinds for x in getattr(each, "__metadata__", ())]
                assert any(isinstance(x, PrimitiveConstructorSpec) for x in parts), (options, name)
    assert paths >= 8


@pytest.mark.parametrize("words", [["--out=~/run"], ["--out", "~/run"]])
@pytest.mark.parametrize("more", [[], OVER])
def test_a_run_in_the_home_of_the_user(more: list[str], words: list[str], home: pathlib.Path):
    assert parse([ENV, *more, *words])[-1] == home / "run"


def test_the_library_finds_the_home_too(home: pathlib.Path):
    run = Run(SETUP, "~/run")
    assert run.path == home / "run" and saved_setup("~/run") == SETUP
    assert saved_sweep("~/none") is None
    append("~/rows.jsonl", {"date": "today"})
    (home / "a.npz").write_bytes(b"")
    for work, message in (
        (lambda: reopen("~/run"), f"no checkpoint in {home}/run"),
        (lambda: load("~/a.npz"), f"{home}/a.npz is damaged"),
    ):
        with pytest.raises(mmrl.runs.RunError, match=message):  # type: ignore[attr-defined]
            work()
    run.snapshot = run.snapshot._replace(history=[{"returns": [0.0, 0.0]}])
    with pytest.raises(ValueError, match=f"got {home}/a.npy"):
        export(run, "~/a.npy")
    assert sorted(path.name for path in home.iterdir()) == ["a.npz", "rows.jsonl", "run"]


EMPTY = (
    ["train", ENV, "--out", ""],
    ["train", "--resume", "--out="],
    ["sweep", ENV, *OVER, "--out="],
    ["sweep", "--resume", "--out", ""],
    ["evaluate", ""],
    ["export", ""],
    ["export", ".", "--out", ""],
    ["demo", "--out", ""],
    ["experiment", "length", "--out", ""],
    ["capstone", "check", ""],
)


@pytest.mark.parametrize("words", EMPTY, ids=" ".join)
def test_an_empty_path_is_a_sentence(
    words: list[str], home: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    assert main(words) == 2
    output = capsys.readouterr().err
    assert "`path` must name a file or folder; got ''" in output and output.count("\n") == 1
    assert not list(home.glob("[!.]*"))  # libraries make .cache and .config


@pytest.mark.parametrize(
    "use", [functools.partial(Run, SETUP), reopen, saved_setup, saved_sweep, load]
)
def test_the_library_refuses_an_empty_path(use: Callable[[str], Any], home: pathlib.Path):
    with pytest.raises(ValueError, match="`path` must name"):
        use("")
    assert not list(home.iterdir())


# Encodings


@pytest.fixture
def stdout(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], io.TextIOWrapper]:
    """A standard output of some encoding."""

    def use(encoding: str) -> io.TextIOWrapper:
        stream = io.TextIOWrapper(io.BytesIO(), encoding, write_through=True)
        monkeypatch.setattr(sys, "stdout", stream)
        return stream

    return use


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437", "utf-8"])
def test_every_character_is_printed_on_every_console(
    encoding: str, stdout: Callable[[str], io.TextIOWrapper]
):
    stream = stdout(encoding)
    replace_unknown()
    text = "→ ▁█ é γ λ ² 語 \udcff ✓ ✗ 😀"
    print(text)
    output = stream.buffer.getvalue().decode(encoding)  # type: ignore[attr-defined]
    assert all(new in (old, "?") for new, old in zip(output, text + "\n", strict=True))


@pytest.mark.parametrize("arguments", [["--help"], ["train", "--help"], ["train", "--presets"]])
def test_help_on_a_console_of_windows(
    arguments: list[str], stdout: Callable[[str], io.TextIOWrapper]
):
    stream = stdout("cp1252")
    try:
        main(arguments)
    except SystemExit as error:
        assert error.code == 0
    assert b"--" in stream.buffer.getvalue()  # type: ignore[attr-defined]


def lacks_encoding(node: ast.AST) -> bool:
    """True if a call opens a text file in the encoding of the machine."""
    if not isinstance(node, ast.Call) or any(x.arg == "encoding" for x in node.keywords):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    texts = [x.value for x in node.args if isinstance(x, ast.Constant)]
    modes = [x.value.value for x in node.keywords if x.arg == "mode"]  # type: ignore[attr-defined]
    if name in ("read_text", "write_text"):
        return len(node.args) <= (name == "write_text")
    opens = name == "open" and ast.unparse(node.func) in ("open", "io.open", "path.open")
    return opens and not any("b" in str(mode) for mode in [*texts, *modes])


def test_all_files_are_utf_8():
    texts = {path.name: path.read_text("utf-8") for path in FILES}
    sources = {k: ast.parse(x) for k, x in texts.items() if "open(" in x or "_text(" in x}
    assert not [name for name, tree in sources.items() if any(map(lacks_encoding, ast.walk(tree)))]
    assert all(
        lacks_encoding(ast.parse(text).body[0].value) for text in ("open(x)", "x.read_text()")
    )  # type: ignore[attr-defined]


@pytest.mark.slow
def test_a_reader_that_has_seen_enough_ends_a_command_quietly():
    command = f"{shlex.quote(sys.executable)} -m mmrl evaluate zoo | true; exit ${{PIPESTATUS[0]}}"
    process = subprocess.run(["bash", "-c", command], capture_output=True)
    assert (process.returncode, process.stderr) == (0, b"")


# Devices


def throw(error: Exception, *_: Any) -> Any:
    raise error


@pytest.mark.parametrize("error", [RuntimeError("Unable to initialize backend"), AssertionError()])
def test_a_platform_that_does_not_start_is_a_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    fail = functools.partial(throw, error)
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(train, "main", fail)
    with pytest.raises(type(error)):  # JAX starts: the error is ours
        main(["train", ENV])
    some = RuntimeError("Unable to start (set JAX_PLATFORMS='' to choose)")
    monkeypatch.setattr(train, "main", functools.partial(throw, some))  # cpu starts, foo does not
    assert main(["train", ENV]) == 2 and "got None: Unable to start. Set" in capsys.readouterr().err
    monkeypatch.setattr(jax, "devices", fail)
    monkeypatch.setattr(train, "main", fail)
    assert main(["train", ENV]) == 2
    output = capsys.readouterr().err
    assert "`JAX_PLATFORMS` must" in output and output.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "name"), [("JAX_PLATFORMS", "foo"), ("JAX_ENABLE_X64", "foo")]
)
def test_a_variable_that_jax_refuses_is_a_sentence(
    variable: str, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(variable, name)
    command = [sys.executable, "-m", "mmrl", "experiment"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert process.returncode == 2 and process.stderr.startswith("mmrl: ")
    assert variable in process.stderr and name in process.stderr and process.stderr.count("\n") == 1
