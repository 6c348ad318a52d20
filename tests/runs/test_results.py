"""Numbers to be trusted: intervals against scipy, rows that stay, NaN that is caught."""

import json
import math
import pathlib
import resource
import signal
import sys
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from mmrl import runs
from mmrl.__main__ import main
from mmrl.agents import AGENTS, find
from mmrl.commands import evaluate
from mmrl.course import plain
from mmrl.course.experiments import grid
from mmrl.envs import probes
from mmrl.runs import Run, RunError, Setup, checkpoint
from tests.helpers.runs import payload, setup, write


def draw(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=count)


def test_the_interquartile_mean_is_that_of_the_middle_half():
    for count in range(1, 14):
        values = draw(count, 3 * count).reshape(3, count)
        expected = []
        for row in values.tolist():
            middle = sorted(row)
            for _ in range(count // 4):
                middle = middle[1:-1]
            expected.append(sum(middle) / len(middle))
        np.testing.assert_allclose(runs.interquartile_mean(values), expected)


def test_the_interval_is_scipys_bootstrap():
    for count in (3, 5, 12):
        values = draw(count, count)
        result = runs.interval(values)
        expected = scipy.stats.bootstrap(
            (values,),
            lambda x, axis: scipy.stats.trim_mean(x, 0.25, axis=axis),
            n_resamples=20_000,
            method="percentile",
            rng=1,
        ).confidence_interval
        # Both draw at random; their quantiles differ by some hundredths of a standard deviation.
        np.testing.assert_allclose(result[1:], expected, atol=0.06)
        assert result[1] <= result[0] <= result[2]
        assert runs.interval(values) == result


def test_intervals_of_few_or_equal_values():
    assert runs.interval(np.array([0.5])) == (0.5, 0.5, 0.5)
    assert runs.interval(np.full(5, 0.25)) == (0.25, 0.25, 0.25)
    with pytest.raises(ValueError, match=r"`values` must .*at least one"):
        runs.interval(np.array([]))


def test_rows_are_only_ever_added(tmp_path: pathlib.Path):
    path = tmp_path / "new" / "results.jsonl"
    runs.append(path, {"return": 1.0})
    first = path.read_bytes()
    runs.append(path, {"return": 2.0})
    assert path.read_bytes().startswith(first)
    path.write_bytes(path.read_bytes()[:-20])  # a kill in the middle of a line
    assert [row["return"] for row in grid.rows(path)] == [1.0]
    runs.append(path, {"return": 3.0})
    assert [row["return"] for row in grid.rows(path)] == [1.0, 3.0]


def test_a_full_disk_leaves_no_half_of_a_row(tmp_path: pathlib.Path):
    path = tmp_path / "results.jsonl"
    runs.append(path, {"return": 1.0})
    first, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(first) + 20, limits[1]))
        with pytest.raises(runs.RunError, match="Cannot write to"):
            runs.append(path, {"return": 2.0})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)
    assert path.read_bytes() == first


def test_a_row_says_where_it_comes_from(tmp_path: pathlib.Path):
    runs.append(tmp_path / "results.jsonl", {"return": 1.0})
    row = json.loads((tmp_path / "results.jsonl").read_text())
    assert {"date", "command", "device", "python", "versions", "revision"} < row.keys()
    assert set(row["versions"]) >= {"mmrl", "jax", "jaxlib", "numpy"}
    assert "cores" in row["device"] and row["date"].endswith("+00:00")


def strict(text: str) -> Any:
    """Read as a reader does who knows no numbers but JSON's."""

    def refuse(word: str) -> None:
        raise ValueError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_what_is_written_is_json_for_every_reader(tmp_path: pathlib.Path):
    """An infinite setting, as PPO has, or a return that is no number: in quotes, and back."""
    path, row = tmp_path / "results.jsonl", {"returns": [1.0, math.nan], "limit": -math.inf}
    runs.append(path, row)
    results = strict(path.read_text())
    assert results["returns"] == [1.0, "NaN"] and float(results["limit"]) == -math.inf
    read = checkpoint.loads(path.read_text())
    assert read["limit"] == -math.inf and math.isnan(read["returns"][1])
    expected = runs.Setup(env="CartPole-v1", agent="ppo", config=plain.PPO, seeds=(0,))
    Run(expected, tmp_path / "run")
    text = (tmp_path / "run" / "results.json").read_text()
    assert expected.config.max_grad_norm == math.inf
    assert runs.restore(strict(text)["setup"]) == runs.saved_setup(tmp_path / "run") == expected
    bare = text.replace('"Infinity"', "Infinity")  # as earlier versions wrote it
    assert bare != text and runs.restore(checkpoint.loads(bare)["setup"]) == expected
    checkpoint.save(tmp_path / "checkpoint", {"setup": runs.describe(expected)}, ())
    header, _ = checkpoint.read(tmp_path / "checkpoint")
    assert runs.restore(header["setup"]) == expected
    strict((tmp_path / "checkpoint").read_bytes().split(b"\n")[2].decode())


@pytest.mark.slow
def test_a_run_writes_its_results_for_people(tmp_path: pathlib.Path):
    run = Run(setup(), tmp_path / "run")
    report = next(iter(run))
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert runs.restore(results["setup"]) == setup()
    assert results["history"][0]["returns"] == report.returns.tolist()
    assert report.env_steps == 4 * 2 * 4  # environments, iterations, steps
    assert {"date", "versions", "device"} < results.keys()


@pytest.mark.parametrize(
    "program, expected",
    [
        ("/usr/bin/mmrl", "mmrl"),
        (str(pathlib.Path(runs.__file__).parents[1] / "__main__.py"), "mmrl"),
        ("/home/me/mmrl-experiments/train.py", "/home/me/mmrl-experiments/train.py"),
        ("/home/mmrl/env/ipykernel_launcher.py", "/home/mmrl/env/ipykernel_launcher.py"),
    ],
)
def test_only_our_own_command_is_named_mmrl(
    program: str, expected: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(sys, "argv", [program, "--lr", "3"])
    assert runs.provenance()["command"] == f"{expected} --lr 3"


@pytest.mark.slow
def test_results_keep_every_command_and_after_which_block_it_went_on(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Also those of a run that is exported; not those that trained nothing."""
    path = tmp_path / "run"

    def run(words: str, blocks: int, steps: int) -> list[tuple[int | None, str]]:
        monkeypatch.setattr(sys, "argv", ["mmrl", *words.split()])
        reports = iter(Run(setup(blocks=blocks), path, resume=words != "train it"))
        assert len([next(reports) for _ in range(steps)]) == steps
        results = checkpoint.loads((path / "results.json").read_text())
        header, _ = checkpoint.read(path / "checkpoint")
        assert len(results["history"]) == len(header["history"])
        assert results["commands"] == header["commands"] and results["setup"] == header["setup"]
        last = dict(results["commands"][-1])
        assert last.pop("after_block") is not None and last.items() <= results.items()
        return [(each["after_block"], each["command"]) for each in results["commands"]]

    first = [(0, "mmrl train it")]
    assert run("train it", blocks=2, steps=2) == first
    assert run("train --resume", blocks=2, steps=0) == first  # it was complete
    assert run("train --blocks 4", blocks=4, steps=0) == first  # killed before its first block
    second = [*first, (2, "mmrl train --blocks 5")]
    assert run("train --blocks 5", blocks=5, steps=1) == second
    third = [*second, (3, "mmrl train --resume")]
    assert run("train --resume", blocks=5, steps=2) == third
    assert main(["export", str(path), "--out", str(tmp_path / "policy.npz")]) == 0
    monkeypatch.setattr(evaluate, "file_returns", lambda *_: np.zeros(2))
    assert main(["evaluate", str(tmp_path / "policy.npz")]) == 0
    assert f"of: {', then '.join(command for _, command in third)}\n" in capsys.readouterr().out
    header, content = checkpoint.read(path / "checkpoint")
    del header["commands"]  # as earlier versions wrote it, which kept the last one alone
    write(path, header, content)
    last = [(None, "mmrl train --resume"), (5, "mmrl train on")]
    assert run("train on", blocks=6, steps=1) == last


# Rewards that are no numbers


class Faulty(probes.Memory):
    """Now and then pays NaN: whenever a uniform number is below 1 in 500."""

    step_numbers = 1

    def advance(self, u: Any, state: Any, action: Any, params: Any):
        after, reward = super().advance(u, state, action, params)
        return after, jnp.where(u[0] < 1 / 500, jnp.nan, reward)


@pytest.fixture
def faulty_env(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setitem(gymnax.registration._registry, "Broken-v0", Faulty)
    monkeypatch.setattr(gymnax, "registered_envs", [*gymnax.registered_envs, "Broken-v0"])
    return "Broken-v0"


@pytest.mark.full
def test_a_reward_that_is_nan_ends_the_run_and_keeps_the_checkpoint(
    faulty_env: str, tmp_path: pathlib.Path
):
    run = Run(setup(env=faulty_env, blocks=100), tmp_path / "run")
    with pytest.raises(RunError, match="NaN or infinite in block") as error:
        for report in run:
            assert np.isfinite(report.returns).all() and np.isfinite(report.loss).all()
            before = payload(tmp_path / "run")
    blocks = len(run.history)
    assert blocks >= 1
    assert f"in block {blocks + 1}" in str(error.value)
    assert f"The checkpoint of block {blocks} is kept" in str(error.value)
    assert "Broken-v0 returns finite rewards" in str(error.value)
    assert payload(tmp_path / "run") == before
    assert len(runs.reopen(tmp_path / "run").history) == blocks


# Observations that are no numbers


class Crashing(probes.Memory):
    """Shows NaN: behind every termination, or always."""

    always = False

    def step_and_reset(self, key: Any, state: Any, action: Any, params: Any, *ends: Any):
        (obs, *rest), reset = super().step_and_reset(key, state, action, params, *ends)
        return (jnp.where(rest[2] | self.always, jnp.nan, obs), *rest), reset


class Blind(Crashing):
    always = True


# Sizes with which two blocks see many ends; another agent has those of its module's `SMALL`.
SMALL: dict[str, dict[str, Any]] = {
    "dqn": {},
    "r2d2": dict(length=4, burn_in=2, n_step=2, capacity=256, batch=4),
    "ppg": dict(rollout=16, minibatches=2, policy_iterations=2, auxiliary_minibatches=2),
    "clear": dict(rollout=16, capacity=256),
    "pqn": dict(rollout=16, minibatches=2),
    "ppo": dict(rollout=16, minibatches=2),
}


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS)
def test_an_observation_that_is_nan_behind_a_termination_does_no_harm(agent: str):
    sizes = dict(width=8, block=2, blocks=2, episodes=4, environments=4, memory="gru")
    own = SMALL[agent] if agent in SMALL else {**find(agent).SMALL, "rollout": 16}
    config = find(agent).Config(**{**own, **sizes}, memory_sizes=(("state_size", 4),))
    for report in (run := Run(Setup(Crashing(), agent=agent, config=config, seeds=(0,)))):
        assert np.isfinite(report.loss).all() and np.isfinite(report.returns).all()
    assert all(np.isfinite(x).all() for x in jax.tree.leaves(run.state.net))
    if agent == "dqn":
        with pytest.raises(RunError, match=r"An observation .* in block 1.*finite observations"):
            next(iter(Run(Setup(Blind(), agent=agent, config=config, seeds=(0,)))))
