"""The benchmarks' runner: verdicts, the saved table, and rivals in another Python."""

import importlib
import json
import pathlib
import sys
import threading
from typing import Any

import pytest

from tests.benchmarks import run, wheels


@pytest.fixture(autouse=True)
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Every test in a folder of its own, 80 columns wide."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def benchmarks(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """Two benchmarks: one reaches a target and misses another, one fails."""
    row = {"ours": 1500.0, "peer": 500.0, "unit": "steps per second", "peer_name": "a peer"}
    rows = [
        {**row, "name": "one", "ratio": 3.0, "target": 2.0},
        {**row, "name": "two", "ratio": 3.0, "target": 4.0},
        {**row, "name": "three", "ratio": 3.0, "target": None},
    ]
    folder = here / "benchmarks"
    folder.mkdir()
    (folder / "bench_good.py").write_text(f"def run(quick=False):\n    return {rows}\n")
    (folder / "bench_bad.py").write_text("def run(quick=False):\n    return 1 / 0\n")
    monkeypatch.setattr(run, "FOLDER", folder)
    return folder


def test_bench_judges_prints_and_saves(benchmarks: Any, capsys: pytest.CaptureFixture[str]):
    assert run.main([]) == 1
    output = capsys.readouterr().out
    assert "reached" in output and "missed" in output
    assert "failed" in output and "ZeroDivisionError" in output
    (file,) = pathlib.Path("results/bench").glob("*.json")
    content = json.loads(file.read_text())
    assert [row["verdict"] for row in content["rows"]] == ["failed", "reached", "missed", ""]
    assert {"device", "date", "versions", "revision", "command"} < content.keys()
    table = file.with_suffix(".md").read_text().splitlines()
    assert table[3] == "| one | a peer | 1,500 | 500 | steps per second | 3.00× | 2× | reached |"


def test_bench_by_name_and_quickly(benchmarks: Any, capsys: pytest.CaptureFixture[str]):
    assert run.main(["good", "--quick", "--out", "elsewhere"]) == 0  # nothing is judged
    assert "missed" not in capsys.readouterr().out
    (file,) = pathlib.Path("elsewhere").glob("*-quick.json")
    assert len(json.loads(file.read_text())["rows"]) == 3


ONCE = """
def run(quick=False, done=()):
    row = {"ours": 2.0, "peer": 1.0, "unit": "s", "peer_name": "a peer", "ratio": 2.0}
    for name in {"one", "two"} - set(done):
        yield {**row, "name": name}
"""


def test_rows_of_earlier_runs_are_left_out(benchmarks: Any):
    (benchmarks / "bench_once.py").write_text(ONCE)
    path = pathlib.Path("results/bench/earlier.json")
    path.parent.mkdir(parents=True)
    row = {"benchmark": "once", "name": "one", "verdict": ""}
    same = {"device": run.provenance()["device"], "quick": False, "rows": [row]}
    for other in ({"device": "another"}, {"quick": True}, {}):
        path.write_text(json.dumps(same | other))
        for file in path.parent.glob("2*.json"):
            file.rename(file.with_suffix(".old"))
        run.main(["once", "--missing"])
    files = sorted(path.parent.glob("2*.*"))
    files = [file for file in files if file.suffix in (".json", ".old")]
    tables = [json.loads(file.read_text())["rows"] for file in files]
    assert [{row["name"] for row in rows} for rows in tables] == [
        {"one", "two"},
        {"one", "two"},
        {"two"},
    ]
    for _ in range(2):  # without `done`, a benchmark that has rows is not measured again
        run.main(["good", "--missing"])
    assert len(list(path.parent.glob("2*.json"))) == 1 + 1


SLOW = """
def run(quick=False):
    row = {"ours": 2.0, "peer": 1.0, "unit": "s", "peer_name": "a peer", "ratio": 2.0}
    yield {**row, "name": "one"}
    wait()
    yield {**row, "name": "two"}

def wait():
    raise KeyboardInterrupt
"""


def test_an_interrupted_run_keeps_its_rows(benchmarks: Any):
    (benchmarks / "bench_slow.py").write_text(SLOW)
    with pytest.raises(KeyboardInterrupt):
        run.main(["slow"])
    (file,) = pathlib.Path("results/bench").glob("*.json")
    assert [row["name"] for row in json.loads(file.read_text())["rows"]] == ["one"]
    assert "| one |" in file.with_suffix(".md").read_text()


def test_no_row_is_started_late(benchmarks: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run, "BEGAN", -1e9)
    assert run.main(["good", "--minutes", "1"]) == 0
    assert not list(pathlib.Path("results/bench").glob("*.json"))


def test_a_row_that_takes_long_is_reported(
    benchmarks: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    report = threading.Event()
    alarm = run._alarm

    def reporting(*arguments: Any) -> None:
        alarm(*arguments)
        report.set()

    monkeypatch.setattr(run, "_alarm", reporting)
    monkeypatch.setattr(run, "ALARM", 0.05)
    monkeypatch.setattr(run, "waiting", report.wait, raising=False)
    text = SLOW.replace("raise KeyboardInterrupt", "waiting()")
    (benchmarks / "bench_slow.py").write_text("from tests.benchmarks.run import waiting\n" + text)
    assert run.main(["slow"]) == 0
    output = capsys.readouterr().err
    assert "slow: the row after 'one'" in output and "wait, line" in output


def test_bench_without_a_peer_says_what_to_install(
    benchmarks: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("COLUMNS", "200")
    (benchmarks / "bench_peer.py").write_text("import a_peer_that_is_not_there\n")
    assert run.main(["peer"]) == 1
    output = capsys.readouterr().out
    assert "a_peer_that_is_not_there is not installed" in output and "'.[dev]'" in output


def test_the_checkouts_own_benchmarks_are_found():
    for name, path in run.find(()).items():
        assert "def run(quick" in path.read_text("utf-8"), name


RIVAL = """
import json, pathlib, sys
settings = json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))
print(json.dumps({"parameters": settings["size"]}), flush=True)
for number, _ in enumerate(sys.stdin):
    if number == settings["rounds"]:
        sys.exit(3)
    print(json.dumps({"cpu_seconds": number / 8}), flush=True)
"""


@pytest.fixture
def rival(here: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the benchmarks, and a rival of their protocol."""
    monkeypatch.syspath_prepend(run.FOLDER)
    module = importlib.import_module("rival")
    (here / "slow_agent.py").write_text(RIVAL)
    return module, module.Rival(here / "slow_agent.py", "1.2")


def test_a_rival_in_another_python_plays_in_turns(rival: Any):
    module, slow = rival
    theirs = module.Theirs(slow, sys.executable, {"size": 7, "rounds": 3})
    assert theirs.parameters == 7
    assert [theirs.round(), theirs.round()] == [1 / 8, 2 / 8]  # one more went before: it compiles
    with pytest.raises(RuntimeError, match=r"slow ended with exit code 3; .* slow 1\.2 installed"):
        theirs.round()
    theirs.close()
    theirs = module.Theirs(slow, sys.executable, {"size": 7, "rounds": 9})
    theirs.close()
    assert theirs.process.returncode == 0


def test_a_rival_that_is_not_there_is_said_to_be_missing(
    rival: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    _, slow = rival
    monkeypatch.delenv("SLOW_PYTHON", raising=False)
    assert slow.python("The agent", "folder/bench_agent.py") is None
    expected = (
        "SLOW_PYTHON is not set: The agent is not compared with slow. bench_agent.py says how"
    )
    assert capsys.readouterr().err.startswith(expected)
    monkeypatch.setenv("SLOW_PYTHON", "slow/bin/python")
    assert slow.python("The agent", "folder/bench_agent.py") == "slow/bin/python"
    assert not capsys.readouterr().err


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match="`names` must be among clear, dqn"):
        run.find(["scam"])


def test_wheels_are_those_that_a_machine_with_jax_lacks():
    names = wheels.closure(["mmrl-jax", "islpy"], "3.12") - wheels.closure(wheels.THERE, "3.12")
    pins = wheels.versions((wheels.ROOT / "requirements.lock").read_text("utf-8"))
    assert {"equinox", "optax", "gymnax", "islpy"} <= names and not names & {"jax", "numpy"}
    assert names - {"mmrl-jax"} <= pins.keys()
    assert wheels.versions("A_b==1.0 ; python_version < '3'\n# c\n") == {"a-b": "1.0"}
