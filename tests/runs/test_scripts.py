"""Parts that are defined in a script: a module that imports the script finds them again."""

import pathlib
import sys
import types
from typing import Any

import pytest

from mmrl.envs.probes import Memory
from mmrl.runs import RunError, Setup, describe, identity

WARNING = "can be found only here"


def defined_in(module: str, monkeypatch: pytest.MonkeyPatch, file: Any = None) -> dict[str, Any]:
    """Describe a setup with an environment and a network of a module, run as `file` or not."""
    main = types.ModuleType("__main__")
    if file is not None:
        main.__file__ = str(file)
    monkeypatch.setitem(sys.modules, "__main__", main)
    kind = type("Game", (Memory,), {"__module__": module, "__qualname__": "Game"})

    def make(config: Any, env: Any, params: Any, key: Any) -> Any: ...

    make.__module__, make.__qualname__ = module, "make"
    return describe(Setup(kind(), make=make))


def test_a_script_is_named_as_the_module_that_it_is(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    files = {"games": tmp_path / "games.py", "package.games": tmp_path / "package" / "games.py"}
    for module, file in files.items():
        for main in ("__main__", "__mp_main__"):
            script = defined_in(main, monkeypatch, file)
            assert script == defined_in(module, monkeypatch, "other.py")
            identity.check_same(tmp_path, script, defined_in(module, monkeypatch))
    with pytest.raises(RunError, match=r"env was 'games\.Game.* is 'others\.Game"):
        identity.check_same(
            tmp_path,
            defined_in("__main__", monkeypatch, "games.py"),
            defined_in("others", monkeypatch),
        )


def test_a_script_resumes_what_it_began_under_an_earlier_version(monkeypatch: pytest.MonkeyPatch):
    earlier = defined_in("__main__", monkeypatch)
    identity.check_same("run", earlier, defined_in("__main__", monkeypatch, "games.py"))
    with pytest.raises(RunError, match="another setup: env was"):
        identity.check_same("run", earlier, defined_in("others", monkeypatch, "games.py"))


def test_parts_of_a_notebook_are_named_before_the_run_begins(
    monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
):
    of_a_script = defined_in("__main__", monkeypatch, "games.py")
    identity.warn_of_main("run", of_a_script)
    of_a_notebook = defined_in("__main__", monkeypatch)
    identity.warn_of_main(None, of_a_notebook)
    identity.warn_of_main("run", describe(Setup("probe-Memory-v0")))
    assert len(recwarn) == 0
    with pytest.warns(UserWarning, match=f"`env` and `make` {WARNING}"):
        identity.warn_of_main("run", of_a_notebook)
