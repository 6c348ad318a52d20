"""An exported policy plays as the network that it was: outputs to 1e-5, and every action."""

import ast
import errno
import json
import os
import pathlib
import runpy
import zipfile
from types import SimpleNamespace
from typing import Any

import equinox as eqx
import jax
import numpy as np
import pytest

from mmrl.__main__ import main
from mmrl.agents import find
from mmrl.memory import Nothing
from mmrl.nets import Net, Stack
from mmrl.rollout import collect, start
from mmrl.runs import OPTIONAL_INPUTS, Run, RunError, Setup, checkpoint, describe, player
from mmrl.runs.export import export
from tests.helpers.runs import SETUP

SIZES: dict[str, Any] = {"width": 8, "environments": 4, "rollout": 4, "block": 2, "episodes": 2}
STEPS = 120
CONTINUOUS = ("Pendulum-v1", "PointRobot-misc")


def random_run(env: str, agent: str, memory: str, **settings: Any) -> Run:
    """A run of one block whose networks have any weights."""
    observes = OPTIONAL_INPUTS if env not in CONTINUOUS else ("begin_flag",)
    settings = dict(settings)
    shown = {"observes": observes, "observe": settings.pop("observe", "observation")}
    config = find(agent).Config(memory=memory, **SIZES, **settings)
    run = Run(Setup(env, config=config, agent=agent, seeds=(3, 5), **shown))
    shapes = jax.eval_shape(run.begin).net
    draw = np.random.default_rng(0).normal  # biases too, which start at zero
    nets = jax.tree.map(lambda x: draw(scale=0.5, size=x.shape).astype(x.dtype), shapes)
    history = [{"block": 1, "returns": [0.25, 0.5]}]
    run.snapshot = run.snapshot._replace(state=SimpleNamespace(net=nets), history=history)
    return run


def greedy_steps(run: Run, at: int) -> Any:
    """Steps of one network's greedy policy, and the outputs that it acts by."""
    env, params, *_ = run.program
    agent = find(run.setup.agent)

    def act(net: Any, state: Any, obs: Any, begin: Any, key: Any) -> Any:
        outputs = net.step(state, obs, begin)[1]
        policy = getattr(outputs, "policy", None)
        report = outputs if policy is None else getattr(policy, "logits", policy.mode())
        return *agent.greedy(net)(state, obs, begin, key), report

    @jax.jit
    def steps(net: Any, key: Any) -> Any:
        carry = start(env, params, net.init(), key)
        return collect(lambda *inputs: act(net, *inputs), env, params, carry, key, STEPS)[1]

    return jax.device_get(steps(jax.tree.map(lambda x: x[at], run.state.net), jax.random.key(1)))


IMPALA = {"observe": "pixels", "encoder": "impala"}
CASES = [
    ("popgym-RepeatFirstEasy-v0", "dqn", "lru", {"batch": 64, "capacity": 1024}),
    ("probe-Memory-v0", "r2d2", "gru", {"batch": 4, "length": 4, "overlap": 2, "burn_in": 2}),
    ("popgym-RepeatFirstEasy-v0", "clear", "gru", {"capacity": 64}),
    ("Pendulum-v1", "ppo", "lru", {}),
    ("PointRobot-misc", "ppo", "none", {}),  # whose actions have a unit
    ("probe-Memory-v0", "ppo", "none", {}),
    ("probe-Memory-v0", "dqn", "none", {"batch": 16, "capacity": 64, "dueling": False}),
    ("probe-MaskedBandit-v0", "dqn", "gru", {"batch": 16, "capacity": 64}),
    ("Breakout-MinAtar", "ppo", "lru", {}),
    ("popgym-RepeatPreviousEasy-v0", "pqn", "gru", {"minibatches": 4, **IMPALA}),
    *[
        ("popgym-RepeatFirstEasy-v0", "pqn", memory, {"minibatches": 4, "memory_sizes": sizes})
        for memory, sizes in {
            "window": (("window", 5),),
            "gtrxl": (("window", 5), ("layers", 2)),
            "lmu": (("order", 3),),
            "mlstm": (("key_size", 3),),
            "s6": (("channels", 6),),
        }.items()
    ],
]


@pytest.mark.slow
@pytest.mark.parametrize(("env", "agent", "memory", "settings"), CASES)
def test_the_player_plays_as_the_network(
    env: str, agent: str, memory: str, settings: dict[str, Any], tmp_path: pathlib.Path
):
    """Along whole episodes and over their ends, shown the environment's own observation."""
    run = random_run(env, agent, memory, **settings)
    steps = greedy_steps(run, 1)
    about = export(run, tmp_path / "policy.npz")  # of the seed that played better
    policy = player.load(tmp_path / "policy.npz")
    assert policy.about == json.loads(checkpoint.dumps(about)) and about["seed"] == 5
    state, reward = policy.init(), np.nan  # which is not read at a start
    assert steps.begin.sum() > 1 or env in CONTINUOUS
    assert (about["format"] == player.MEMORIES) == (memory not in ("gru", "lru", "none"))
    picture = steps.obs[0] if isinstance(steps.obs, tuple) else None
    assert ("picture" in about) == (picture is not None)
    for t in range(STEPS):
        obs = steps.obs[t][: about["observation"]] if picture is None else picture[t]
        _, outputs = policy.outputs(state, obs, bool(steps.begin[t]), float(reward))
        state, action = policy.step(state, obs, bool(steps.begin[t]), float(reward))
        np.testing.assert_allclose(outputs, steps.extras[t], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(action, steps.action[t], rtol=1e-5, atol=1e-5)
        reward = steps.reward[t]


@pytest.mark.slow
def test_a_dtype_that_numpy_lacks_is_exported_as_float32(tmp_path: pathlib.Path):
    run = random_run("probe-Memory-v0", "dqn", "none", batch=16, capacity=64)
    nets = jax.tree.map(lambda x: x.astype("bfloat16"), run.state.net)
    run.snapshot = run.snapshot._replace(state=SimpleNamespace(net=nets))
    export(run, tmp_path / "policy.npz")
    policy = player.load(tmp_path / "policy.npz")
    obs = np.ones(policy.about["observation"], np.float32)
    outputs = policy.outputs(policy.init(), obs, True)[1]
    assert {x.dtype.name for x in policy.arrays.values()} <= {"float32", "complex64"}
    assert np.isfinite(outputs).all()


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of a run of three blocks. Read only."""
    path = tmp_path_factory.mktemp("runs") / "run"
    list(Run(SETUP, path))
    return path


@pytest.mark.full
@pytest.mark.slow
def test_the_command_says_what_it_wrote_and_how_to_play_it(
    run_folder: pathlib.Path,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    assert main(["export", str(run_folder), "--network", "1", "--best"]) == 0
    output = capsys.readouterr().out
    file = pathlib.Path("results") / f"{run_folder.name}-policy-1.npz"
    assert str(file) in output
    report = player.load(file).about
    history = json.loads((run_folder / "results.json").read_text())["history"]
    returns = [row["returns"][1] for row in history]
    assert report["return"] == max(returns) and report["block"] == 1 + returns.index(max(returns))
    assert f"seed 1 after block {report['block']}" in output and "player.py" in output
    assert (
        report["env"] == SETUP.env
        and report["versions"]
        and report["setup"]["config"]["width"] == 8
    )
    for arguments, message in (
        (["--out", str(file)], "policy-1.npz already exists. Choose another"),
        (["--network", "7", "--out", "new.npz"], "`network` must be a seed of the run, one of"),
        (["--out", "new"], "`path` must end in .npz; got new"),
        (["--out", f"{file}/new.npz"], f"Cannot write to {file}"),
    ):
        assert main(["export", str(run_folder), *arguments]) == 2
        assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.rglob("*")] == ["results", file.name]
    assert main(["export", str(run_folder)]) == 0
    assert file.with_name(f"{run_folder.name}-policy-2.npz").exists()


@pytest.mark.parametrize("words", [["export"], ["evaluate"], ["train", "--resume", "--out"]])
def test_a_run_of_an_own_environment_is_opened_where_its_module_is(
    words: list[str], tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    report = {"setup": describe(Setup("far_away:Game")), "history": []}
    checkpoint.save(tmp_path / "checkpoint", report, ())
    assert main([*words, str(tmp_path)]) == 2
    output = capsys.readouterr().err
    assert "got 'far_away:Game': there is no module 'far_away' in the current folder or" in output
    assert "Run mmrl in the folder that contains it, or add that folder to PYTHONPATH" in output


def test_a_full_disk_leaves_no_file(
    run_folder: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert main(["export", str(run_folder), "--out", str(tmp_path / "policy.npz")]) == 2
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_or_foreign_file_is_refused(run_folder: pathlib.Path, tmp_path: pathlib.Path):
    file = tmp_path / "policy.npz"
    assert main(["export", str(run_folder), "--out", str(file)]) == 0
    whole = file.read_bytes()
    with zipfile.ZipFile(file) as archive:  # headers contain bytes without a checksum
        part = max(archive.infolist(), key=lambda part: part.compress_size)
    assert part.compress_size > 500
    middle = part.header_offset + 100 + part.compress_size // 2
    damage = whole[:middle] + bytes([whole[middle] ^ 255]) + whole[middle + 1 :]
    np.savez(tmp_path / "other.npz", np.zeros(3))
    with np.load(file) as arrays:  # a network of another size, and whole but of an earlier format
        np.savez(tmp_path / "wrong.npz", **{**arrays, "head.0.weight": np.zeros((2, 3))})
        about = str(arrays["about"]).replace(player.FORMAT, "mmrl policy 1")
        np.savez(tmp_path / "former.npz", **{**arrays, "about": np.array(about)})
    others = [(tmp_path / f"{name}.npz").read_bytes() for name in ("other", "former", "wrong")]
    for bad in (damage, whole[:middle], b"", *others):
        file.write_bytes(bad)
        with pytest.raises(ValueError, match=r"is damaged or was not written by `mmrl export`"):
            player.load(file)
    with pytest.raises(FileNotFoundError):
        player.load(tmp_path / "nowhere.npz")
    file.write_bytes(whole)
    policy = player.load(file)
    with pytest.raises(ValueError, match=r"`obs` must have \d elements; got 99"):
        policy.step(policy.init(), np.zeros(99), True)


class Other(eqx.Module):
    """A part of the user's own."""

    def __call__(self, x: Any) -> Any:
        return x


class Around(eqx.Module):
    """A network that may change what the inner one reads."""

    net: Any


def test_what_the_player_does_not_know_is_named(tmp_path: pathlib.Path):
    run = Run(SETUP)
    history = [{"block": 1, "returns": [0.0, 0.0]}]
    parts = {"encoder": Stack(()), "memory": Nothing(4), "head": Stack(())}
    for part in parts:
        net: Any = Net(**{**parts, part: Other()})
        state = SimpleNamespace(net=net)
        run.snapshot = run.snapshot._replace(state=state, history=history)
        with pytest.raises(RunError, match=f"A {part} of type Other cannot be exported"):
            export(run, tmp_path / "policy.npz")
    run.snapshot = run.snapshot._replace(state=SimpleNamespace(net=Other()))
    with pytest.raises(RunError, match=r"A network of .* supports the .* memories `gru`"):
        export(run, tmp_path / "policy.npz")
    net: Any = Around(Net(**parts))
    run.snapshot = run.snapshot._replace(state=SimpleNamespace(net=net))
    with pytest.raises(RunError, match="A network of"):
        export(run, tmp_path / "policy.npz")


def test_the_player_is_one_file_that_needs_numpy_alone():
    source = pathlib.Path(player.__file__ or "")
    tree = ast.parse(source.read_text("utf-8"))
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert sorted(ast.unparse(node) for node in nodes) == ["import json", "import numpy as np"]
    assert set(runpy.run_path(str(source))) >= {"Policy", "load"}
