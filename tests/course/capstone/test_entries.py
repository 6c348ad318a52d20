"""Entries: what is written, and cheats that are refused by a sentence each.

Chapter 19 trains in earnest, and asserts that networks differ in nothing but the memory.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from mmrl.__main__ import main
from mmrl.course.capstone import entries, evaluation, gates
from mmrl.course.capstone.evaluation import FULL, HELD_OUT, QUICK, TUNING
from mmrl.runs import RunError
from tests.course.capstone import wrong

SOURCE = Path(wrong.__file__).read_text("utf-8")


def stub_scores(
    factory, protocol, sees_state=False, log=print, score=lambda seed: 0.5
) -> dict[str, Any]:
    """Stands for training: returns that depend on the seed alone."""
    returns = [score(seed) + 0.01 * (seed % 5) for seed in protocol.seeds]
    one = {"returns": returns, "env_steps": protocol.env_steps, "cpu_seconds": 10.0}
    tasks = {task: dict(one) for task in protocol.tasks}
    return {"tasks": tasks, **evaluation.summary(tasks)}


@pytest.fixture(autouse=True)
def passing_gates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Gates have tests of their own: here all pass, but where a test asks."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(gates, "judge", lambda factory: gates.GateResult({"laws": ""}, 64, 32, 32))
    (tmp_path / "mine.py").write_text(SOURCE)
    yield
    sys.modules.pop("mine", None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An entry as it should be."""
    out = tmp_path / "handed" / "in.json"
    entries.run("mine:right", out, tuning_seeds=(100,), evaluate=stub_scores)
    return out


def refusal(path: Path, **options: Any) -> str:
    return " ".join(entries.check(path, **{"evaluate": stub_scores, **options}))


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def test_an_honest_entry_says_where_it_comes_from_and_is_accepted(path: Path):
    entry = entries.read(path)
    assert entry["name"] == "right" and {"date", "command", "device", "versions"} <= set(entry)
    assert entry["seeds"] == list(FULL.seeds) and set(entry["tasks"]) == set(HELD_OUT)
    assert (path.parent / "in.py").read_text() == SOURCE  # called as the entry is
    assert entry["score"] == pytest.approx(0.52, abs=1e-6)
    assert refusal(path) == ""
    (path.parent.parent / "mine.py").write_text("right = None")  # goes on being changed
    assert refusal(path) == ""


def test_tuning_and_reporting_share_neither_tasks_nor_seeds():
    assert not set(HELD_OUT) & set(TUNING.tasks)
    assert max(FULL.seeds) < TUNING.first_seed <= min(QUICK.seeds)
    assert set(QUICK.tasks) <= set(TUNING.tasks)


def test_an_edited_score_is_refused(path: Path):
    edit(path, score=0.9, interval_95=[0.88, 0.92])
    message = refusal(path)
    assert "Its score was edited: 0.9 is reported" in message and "yield 0.52." in message


def test_edited_returns_are_refused_because_they_do_not_come_again(path: Path):
    tasks = json.loads(path.read_text())["tasks"]
    for one in tasks.values():
        one["returns"] = [x + 0.3 for x in one["returns"]]
    edit(path, tasks=tasks, **evaluation.summary(tasks))
    message = refusal(path)
    assert "not reproduced with the seeds 0, 1, 2, 3, 4" in message and "it was edited" in message


def test_who_widens_an_interval_until_it_meets_the_true_one_is_refused(path: Path):
    """Two seeds at the least that there is, and three at the most."""
    tasks = json.loads(path.read_text())["tasks"]
    for one in tasks.values():
        one["returns"] = [0.1, 0.1, 0.95, 0.95, 0.95]
    edit(path, tasks=tasks, **evaluation.summary(tasks))
    low, high = json.loads(path.read_text())["interval_95"]
    assert low < 0.5 < high
    assert "too far apart; it was edited" in refusal(path)


def test_nothing_is_replaced_but_a_quick_look(path: Path, tmp_path: Path):
    def evaluate(*args: Any, **options: Any) -> dict[str, Any]:
        raise AssertionError("It must be refused before it is evaluated.")

    with pytest.raises(ValueError, match=r"`out` must be a new file; .*in\.json"):
        entries.run("mine:right", path, evaluate=evaluate)
    (path.parent / "own.py").write_text("mine")
    with pytest.raises(ValueError, match=r"own\.py exists already"):
        entries.run("mine:right", path.with_name("own.json"), evaluate=evaluate)
    for _ in range(2):
        entries.run("mine:right", tmp_path / "quick.json", protocol=QUICK, evaluate=stub_scores)
    entries.run("mine:growing", path.with_name("other.json"), evaluate=stub_scores)
    assert refusal(path) == refusal(path.with_name("other.json")) == ""


@pytest.mark.parametrize("protocol", [FULL, QUICK], ids=lambda x: x.name)
def test_of_two_runs_at_once_none_replaces_an_entry(protocol: Any, path: Path):
    first, out = path.read_bytes(), path.with_name("new.json")

    def overtaken(*args: Any, **options: Any) -> dict[str, Any]:
        out.write_bytes(first)
        return stub_scores(*args, **options)

    with pytest.raises(ValueError, match=r"new\.json exists already"):
        entries.run("mine:right", out, protocol=protocol, evaluate=overtaken)
    assert out.read_bytes() == first


def test_a_quick_look_replaces_a_quick_look_alone(path: Path, tmp_path: Path):
    """Neither an entry nor another file of the student's."""
    (tmp_path / "precious.py").write_text("mine")
    for out in (path, tmp_path / "precious.py"):
        before = {file: file.read_bytes() for file in tmp_path.rglob("*.*") if file.is_file()}
        with pytest.raises(ValueError, match="exists already"):
            entries.run("mine:right", out, protocol=QUICK, evaluate=stub_scores)
        assert before == {file: file.read_bytes() for file in before}
    for _ in range(2):
        entries.run("mine:right", tmp_path / "precious.json", protocol=QUICK, evaluate=stub_scores)
    assert (tmp_path / "precious.py").read_text() == "mine"  # a quick look comes without a source


def test_a_memory_of_the_library_is_an_entry_without_a_copy(path: Path):
    entries.run("mmrl.memory:LRU", path.with_name("lru.json"), evaluate=stub_scores)
    assert not path.with_name("lru.py").exists()
    assert refusal(path.with_name("lru.json")) == ""


def test_a_memory_in_a_folder_is_checked_without_it(path: Path, tmp_path: Path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "memory.py").write_text(SOURCE)
    entries.run("folder.memory:right", path.with_name("dotted.json"), evaluate=stub_scores)
    (tmp_path / "folder").rename(tmp_path / "gone")
    for name in ("folder.memory", "folder"):
        sys.modules.pop(name, None)
    assert refusal(path.with_name("dotted.json")) == ""


@pytest.mark.parametrize("field", ["name", "sees", "state", "score", "cpu_seconds"])
def test_an_entry_without_a_field_is_refused(field: str, path: Path):
    entry = json.loads(path.read_text())
    del entry[field]
    path.write_text(json.dumps(entry))
    assert "was not written by `mmrl capstone run`" in refusal(path)


def test_a_memory_that_raises_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch):
    def raises(*args: Any, **options: Any) -> Any:
        raise ZeroDivisionError("in a student's memory")

    assert "raised" in refusal(path, evaluate=raises)
    monkeypatch.setattr(gates, "judge", raises)
    assert "raised" in refusal(path)


def test_times_are_positive(path: Path):
    entry = json.loads(path.read_text())
    for task in entry["tasks"].values():
        task["cpu_seconds"] = 0.0
    edit(path, tasks=entry["tasks"], **evaluation.summary(entry["tasks"]))
    assert "cpu_seconds must be positive" in refusal(path)


def test_an_edit_during_the_evaluation_is_not_recorded(tmp_path: Path):
    def edits(*args: Any, **options: Any) -> dict[str, Any]:
        (tmp_path / "mine.py").write_text(SOURCE + "# edited\n")
        return stub_scores(*args, **options)

    out = tmp_path / "handed" / "in.json"
    entries.run("mine:right", out, tuning_seeds=(100,), evaluate=edits)
    assert out.with_suffix(".py").read_text() == SOURCE
    assert refusal(out) == ""


@pytest.mark.parametrize(
    "fresh", [(7001,), (7001, 7001, 7002, 7003, 7004), (7001, 7001, 7002, 7003, 7004, 7005)]
)
def test_fresh_seeds_are_as_many(path: Path, fresh: tuple[int, ...]):
    with pytest.raises(ValueError, match="5 different seeds"):
        entries.check(path, fresh=fresh, evaluate=stub_scores)


def test_who_tuned_on_reported_seeds_or_held_out_tasks_is_refused(path: Path):
    edit(path, tuning={"tasks": [], "seeds": [100, 3]})
    assert "It was tuned on 3:" in refusal(path)
    edit(path, tuning={"tasks": [HELD_OUT[0]], "seeds": [100]})
    assert f"It was tuned on {HELD_OUT[0]}" in refusal(path)
    with pytest.raises(ValueError, match="tuned on 0:"):
        entries.run("mine:right", path, tuning_seeds=(0,), evaluate=stub_scores)


def test_who_tuned_on_reported_seeds_and_does_not_say_so_is_found_by_fresh_ones(tmp_path: Path):
    def evaluate(*args: Any, **options: Any) -> dict[str, Any]:
        return stub_scores(*args, **options, score=lambda seed: 0.8 if seed in FULL.seeds else 0.4)

    out = tmp_path / "fitted.json"
    entries.run("mine:right", out, evaluate=evaluate)
    message = refusal(out, evaluate=evaluate, fresh=(7001, 7002, 7003, 7004, 7005))
    assert "seeds 7001, 7002" in message and "fitted to the reported seeds" in message
    answer = refusal(out, evaluate=evaluate)
    assert "fitted to the reported seeds" in answer and "7001, 7002" not in answer


@pytest.mark.parametrize(
    ("memory", "gate", "message"),
    [("peeking", "future", "peeks at the future"), ("tape", "contract", "grows with the tape")],
)
def test_a_memory_that_a_gate_refuses_gets_no_entry(
    memory: str, gate: str, message: str, path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Not when it is run, and not when an entry that was accepted is given another memory."""
    judgment = gates.GateResult({gate: f"It {message}."}, 64, 32, 32)
    monkeypatch.setattr(gates, "judge", lambda factory: judgment)
    with pytest.raises(ValueError, match=message):
        entries.run(f"mine:{memory}", path.with_name("new.json"), evaluate=stub_scores)
    edit(path, memory=f"mine:{memory}")
    assert f"[{gate}] It {message}" in refusal(path)


def test_another_source_budget_or_set_of_seeds_is_refused(path: Path):
    entry = json.loads(path.read_text())
    edit(path, parameters=31)
    assert "Its `parameters` must be 32, got 31." in refusal(path)
    edit(path, **entry | {"remembers": 10_000})
    assert "Its `remembers` must be 32, got 10000." in refusal(path)
    edit(path, **entry | {"seeds": [0, 1, 2]})
    assert "It must report the seeds (0, 1, 2, 3, 4)" in refusal(path)
    tasks = {k: v | {"env_steps": 10 * v["env_steps"]} for k, v in entry["tasks"].items()}
    edit(path, **{**entry, "tasks": tasks})
    assert f"did not take {FULL.env_steps} steps" in refusal(path)
    edit(path, **entry)
    (path.parent / "in.py").write_text(SOURCE + "# 0.123\n" * 3000)
    assert "at most 20,000 are allowed" in refusal(path)
    (path.parent / "in.py").write_text(SOURCE + "\n")
    assert "Its source has changed: in.py" in refusal(path)
    (path.parent / "in.py").write_text("import nowhere_else\nright = None")
    assert "in.py raised ModuleNotFoundError" in refusal(path)
    (path.parent / "in.py").unlink()
    edit(path, memory="nowhere:Mine")
    assert "Its memory cannot be loaded" in refusal(path)


def test_what_sees_the_state_is_not_ranked(path: Path):
    entry = entries.run("mine:right", path.with_name("o.json"), oracle=True, evaluate=stub_scores)
    assert entries.control(entry) and not entries.control(entries.read(path))


def test_what_is_no_entry_is_told_apart(path: Path):
    edit(path, quick=1)
    lacking = {k: v for k, v in json.loads(path.read_text()).items() if k != "seeds"}
    path.write_text(json.dumps(lacking))
    assert "was not written by" in refusal(path)
    path.write_text(json.dumps({**dict.fromkeys(lacking), "tuning": []}))
    assert "was not written by" in refusal(path)
    path.write_text("[]")
    with pytest.raises(RunError, match="is not an entry"):
        entries.check(path)
    path.write_text("no")
    with pytest.raises(RunError, match="is not JSON"):
        entries.check(path)


def test_a_quick_look_says_that_it_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    lines: list[str] = []
    one = {"returns": [0.1, 0.3], "cpu_seconds": 1.0}
    monkeypatch.setattr(evaluation, "train", lambda *args: one)
    entries.run("mine:right", tmp_path / "quick.json", protocol=QUICK, evaluate=stub_scores)
    assert "'quick' do not count" in refusal(tmp_path / "quick.json")
    assert evaluation.evaluate(wrong.right, QUICK, log=lines.append)["score"] == pytest.approx(0.2)
    assert lines[0] == evaluation.NOTHING and "does not count" in lines[0]


def test_the_command_judges_writes_and_checks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(evaluation, "evaluate", stub_scores)
    assert main(["capstone", "gates", "mine:right"]) == 0
    assert "✓ laws" in capsys.readouterr().out
    assert main(["capstone", "run", "mine:right", "--out", "a/b.json", "--name", "Mine"]) == 0
    assert "capstone check a/b.json" in capsys.readouterr().out
    assert (
        main(["capstone", "check", "a/b.json", "--fresh", *["900", "901", "902", "903", "904"]])
        == 0
    )
    output = capsys.readouterr().out
    assert "seeds 900, 901," in output and "✓ a/b.json is as reported, measured again." in output
    edit(tmp_path / "a" / "b.json", score=0.99)
    assert main(["capstone", "run", "mine:right"]) == 0
    (tmp_path / "results" / "capstone" / "right.json").rename(tmp_path / "a" / "c.json")
    (tmp_path / "results" / "capstone" / "right.py").rename(tmp_path / "a" / "right.py")
    capsys.readouterr()
    assert main(["capstone", "check", "a", "--no-rerun"]) == 1
    output = capsys.readouterr().out
    assert "✗ a/b.json: Its score was edited" in output and "✓ a/c.json is as reported" in output
    (tmp_path / "a" / "a.json").write_text("no")
    assert main(["capstone", "check", "a", "--no-rerun"]) == 1
    output = capsys.readouterr().out
    assert "✗ a/a.json: a/a.json is not JSON" in output and "✓ a/c.json is as reported" in output
    assert main(["capstone", "check", "a/a.json", "--no-rerun"]) == 2
    assert main(["capstone", "check", "results"]) == 2
    assert main(["capstone", "check", "a/b.json", "--no-rerun"]) == 1
    assert "✗ a/b.json: Its score was edited" in capsys.readouterr().out
    judgment = gates.GateResult({"laws": "It is none."}, 0, 0, 0)
    monkeypatch.setattr(gates, "judge", lambda factory: judgment)
    assert main(["capstone", "gates", "mine:right"]) == 1
    assert "✗ laws       It is none." in capsys.readouterr().out
    assert main(["capstone", "run", "mine:no", "--out", "a/d.json"]) == 2
    assert "`memory` must name an object of mine" in capsys.readouterr().err
