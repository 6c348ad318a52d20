"""The best network of each seed is that of the block which says so, whatever happens to the run."""

import errno
import os
import pathlib
import re
import shutil
from typing import Any

import jax
import numpy as np
import pytest

from mmrl.__main__ import main
from mmrl.commands import evaluate
from mmrl.runs import Report, Run, RunError, checkpoint, reopen
from tests.helpers.runs import SETUP, leaves, payload, setup

SCORES = np.array([[0.0, 0.5], [1.0, 0.5], [1.0, 0.25], [0.5, 2.0]])  # [block, seed]
BLOCKS = [2, 1]  # the best of the first three: the first of equals


class Kill(BaseException):
    """Ends a write as a kill would."""


@pytest.fixture(autouse=True, scope="module")
def fixed_scores():
    """Evaluations come out as `SCORES`, on every processor."""
    with pytest.MonkeyPatch.context() as patch:

        def report(block: int, returns: Any, **args: Any) -> Report:
            return Report(block=block, returns=SCORES[block - 1], **args)

        patch.setattr("mmrl.runs.run.Report", report)
        yield


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, list[Any]]:
    """The folder of an unbroken run of three blocks, and the networks after each."""
    run = Run(SETUP, tmp_path_factory.mktemp("runs") / "unbroken")
    nets = [run.state.net for _ in run]
    return run.path or pathlib.Path(), nets


@pytest.fixture
def copy(full_run: tuple[pathlib.Path, list[Any]], tmp_path: pathlib.Path) -> pathlib.Path:
    return shutil.copytree(full_run[0], tmp_path / "copy")


def best_bytes(path: pathlib.Path) -> bytes:
    return checkpoint.read(path / "best")[1]


@pytest.mark.full
@pytest.mark.slow
def test_the_best_of_each_seed_is_its_network_after_that_block(full_run: Any):
    path, nets = full_run
    best = reopen(path, best=True).best
    assert best is not None and best.block.tolist() == BLOCKS
    assert best.returns.tolist() == [SCORES[1, 0], SCORES[0, 1]]
    for seed, block in enumerate(BLOCKS):
        expected = leaves(jax.tree.map(lambda x, i=seed: x[i], nets[block - 1]))
        for ours, theirs in zip(leaves(best.net), expected, strict=True):
            assert ours.dtype == theirs.dtype
            np.testing.assert_array_equal(ours[seed], theirs)
    last = reopen(path)
    assert last.best is None and len(last.history) == 3


@pytest.mark.parametrize("block", [1, 2, 3])
@pytest.mark.parametrize("end", [Kill(), OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))])
def test_a_block_whose_best_is_not_yet_written(
    block: int, end: BaseException, full_run: Any, tmp_path: pathlib.Path
):
    """By a kill, or a full disk, after the checkpoint: nothing is lost, nothing comes out else."""
    run, real = Run(SETUP, tmp_path / "run"), os.replace
    for _ in range(block - 1):
        next(iter(run))

    def stop(partial: pathlib.Path, to: pathlib.Path) -> None:
        if to.name in ("best", "results.json"):
            raise end
        real(partial, to)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", stop)
        with pytest.raises(Kill if isinstance(end, Kill) else RunError):
            next(iter(run))
    best = reopen(tmp_path / "run", best=True).best
    assert best is not None and best.block.tolist() == [min(block, b) for b in BLOCKS]
    again = run if isinstance(end, OSError) else Run(SETUP, tmp_path / "run", resume=True)
    list(again)
    assert again.best is not None and again.best.block.tolist() == BLOCKS
    assert best_bytes(tmp_path / "run") == best_bytes(full_run[0])
    assert payload(tmp_path / "run") == payload(full_run[0])


def test_a_damaged_or_foreign_file_is_refused_and_the_run_is_whole(copy: pathlib.Path):
    file, path = copy / "best", copy / "checkpoint"
    whole, header = file.read_bytes(), checkpoint.read(file)[0]
    other = {**header, "best": {**header["best"], "block": [1, 1]}}
    checkpoint.save(file, other, reopen(copy, best=True).best.net)  # type: ignore[union-attr]
    for bad in (file.read_bytes(), whole[:-1], whole[:300] + b"x" + whole[301:], path.read_bytes()):
        file.write_bytes(bad)
        for attempt in (
            lambda: Run(SETUP, copy, resume=True),
            lambda: reopen(copy, best=True),
        ):
            with pytest.raises(RunError, match=r"best is damaged, or belongs to another run"):
                attempt()
        assert len(reopen(copy).history) == 3 and file.read_bytes() == bad
    file.unlink()
    Run(SETUP, copy, resume=True)
    assert reopen(copy, best=True).best.block.tolist() == [3, 3]  # type: ignore[union-attr]


def test_a_run_of_before_keeps_its_best_from_when_it_is_resumed(
    copy: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    (copy / "best").unlink()
    assert main(["evaluate", str(copy), "--best"]) == 2
    assert "has no best networks, because it was trained by an earlier" in capsys.readouterr().err
    run = Run(setup(blocks=4), copy, resume=True)
    assert [report.block for report in run] == [4]
    assert run.best is not None and run.best.block.tolist() == [3, 4]


def test_evaluate_plays_the_best_and_says_of_which_blocks(
    copy: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    networks = []
    monkeypatch.setattr(
        evaluate, "greedy_returns", lambda run, net, *_: networks.append(net) or np.eye(2)
    )
    assert main(["evaluate", str(copy), "--best", "--episodes", "2"]) == 0
    assert main(["evaluate", str(copy), "--episodes", "2"]) == 0
    (best, last), run = networks, reopen(copy, best=True)
    assert run.best is not None
    for net, expected in ((best, run.best.net), (last, run.state.net)):
        for ours, theirs in zip(leaves(net), leaves(expected), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    blocks = re.findall(r"│ (\d) +│\n", capsys.readouterr().out)
    assert [int(block) for block in blocks] == [*BLOCKS, 3, 3]


@pytest.mark.slow
def test_a_lost_checkpoint_does_not_hide_the_best(
    copy: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    file, expected = copy / "checkpoint", reopen(copy, best=True).best
    whole = file.read_bytes()
    monkeypatch.setattr(evaluate, "greedy_returns", lambda *_: np.eye(2))
    for content in (whole[:-1], b"", None):
        file.unlink() if content is None else file.write_bytes(content)
        run = reopen(copy, best=True)
        assert run.state is None and run.history == [] and run.snapshot.origin["versions"]
        assert run.best is not None and expected is not None and run.best.block.tolist() == BLOCKS
        for ours, theirs in zip(leaves(run.best), leaves(expected), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        (policy := copy.parent / "policy.npz").unlink(missing_ok=True)
        for words, message in (
            (["evaluate"], "each after its best\n"),
            (["export", "--out", str(policy)], "seed 0 after block 2, return 1.000"),
        ):
            assert main([*words, str(copy), "--best"]) == 0
            output = capsys.readouterr().out
            assert f"{file} is lost or damaged. Only the best networks are" in output
            assert message in output
    file.write_bytes(whole[:-1])
    assert main(["evaluate", str(copy)]) == 2
    assert f"play the best networks with `mmrl evaluate {copy} --best`" in capsys.readouterr().err
    (copy / "best").write_bytes(whole[:-1])  # and both of them
    assert main(["evaluate", str(copy), "--best"]) == 2
    assert "checkpoint is damaged or cut short" in capsys.readouterr().err
