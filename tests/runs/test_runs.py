"""Runs: resume is exact, and nothing that goes wrong costs what was saved."""

import dataclasses
import errno
import io
import json
import os
import pathlib
import pickle
import shutil
import tracemalloc
from functools import partial
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import envs, runs
from mmrl.agents import AGENTS, dqn, find, r2d2
from mmrl.agents.ppo import ppg
from mmrl.agents.settings import Settings as Base
from mmrl.envs.probes import Memory
from mmrl.envs.wrappers import TimeLimit, Trial
from mmrl.runs import Run, RunError, Setup, checkpoint, describe, restore, room
from mmrl.runs.earlier import earlier
from mmrl.runs.identity import check_same
from mmrl.runs.parallel import keys, side_by_side
from mmrl.runs.programs import build
from tests.helpers.runs import R2D2, SETUP, leaves, payload, setup, write


@pytest.fixture(scope="module")
def full_run(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of an unbroken run of three blocks. Read only."""
    path = tmp_path_factory.mktemp("runs") / "unbroken"
    assert len(list(Run(SETUP, path))) == 3
    return path


@pytest.fixture
def copy(full_run: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    """A copy of that folder, to be damaged."""
    return shutil.copytree(full_run, tmp_path / "copy")


# Agents


@pytest.mark.parametrize("agent", AGENTS)
def test_what_a_setup_leaves_out_is_the_agents_own(agent: str):
    module = find(agent)
    usual = Setup(env="probe-Memory-v0", agent=agent)
    assert usual.config == module.Config()
    assert usual.observes == module.OBSERVES
    assert runs.restore(json.loads(json.dumps(runs.describe(usual)))) == usual
    assert dataclasses.replace(usual, observes=()) == Setup(usual.env, agent=agent, observes=())


@pytest.mark.parametrize("agent", AGENTS)
def test_real_numbers_do_not_recompile(agent: str):
    """They are the leaves of a config, and all else is its structure."""
    config = find(agent).Config()
    assert jax.tree.leaves(config) == [x for x in vars(config).values() if isinstance(x, float)]


def test_weak_types_in_a_state_do_not_recompile():
    """As in MetaMaze of gymnax, whose step returns a reward of Python."""
    agent = SimpleNamespace(
        init=lambda config, env, params, key: jax.random.uniform(key, (2,)),
        block=lambda config, env, params, state: (jnp.full(2, 1.0), state.sum()),
        OWN=(),
    )
    init, block = side_by_side(agent, None, None)
    state = init({}, keys((0, 1)))
    for _ in range(2):
        state, _ = block({}, state)
    assert block._cache_size() == 1


def test_observes_shows_what_it_says_in_one_order():
    def setup_with(*names: str) -> Any:
        env, params, *_ = runs.program("r2d2", "probe-Memory-v0", names)
        _, state = env.reset(jax.random.key(0), params)
        return env.step(jax.random.key(1), state, 1, params)

    alone = setup_with()[0]
    obs, _, reward, *_ = setup_with("begin_flag", "previous_reward", "previous_action")
    np.testing.assert_array_equal(obs, [*alone, 0, 1, reward, 0])
    assert (
        Setup("probe-Memory-v0", observes=runs.OPTIONAL_INPUTS[::-1]).observes
        == runs.OPTIONAL_INPUTS
    )
    with pytest.raises(ValueError, match=r"`observes` .*previous_reward.* got \['reward'\]"):
        Setup("probe-Memory-v0", observes=("reward",))


def test_a_run_on_the_state_is_another_setup():
    twin, usual = dataclasses.replace(SETUP, observe="state"), describe(SETUP)
    assert "observe" not in usual and describe(twin) == {**usual, "observe": "state"}
    assert restore(describe(twin)) == twin and restore(usual) == SETUP
    check_same("here", usual, usual)
    with pytest.raises(RunError, match="observe was 'observation', is 'state'"):
        check_same("here", usual, describe(twin))
    env, params, *_ = build(twin)
    bare, _ = envs.make(SETUP.env)
    obs, state = env.reset(jax.random.key(0), params)
    np.testing.assert_array_equal(obs[:2], bare.state_obs(state, params))  # then a begin flag
    with pytest.raises(ValueError, match="`observe` must be one of observation, state"):
        build(dataclasses.replace(SETUP, observe="all"))


@dataclasses.dataclass
class Unhashable:
    """A part that no compiled program can be kept for."""

    def __call__(self, config: Any, env: Any, params: Any, key: Any) -> Any: ...


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"env": 3}, "`env` must be an id, an environment .* got 3"),
        ({"env": Memory}, r"`env` must be .*; got its class. Pass an instance, Memory\(\)"),
        (
            {"env": (Memory().default_params, Memory())},
            "`env` must be .* a tuple of an environment",
        ),
        ({"observes": "begin_flag"}, "`observes` must be a tuple of names; got 'begin_flag'"),
        ({"observes": True}, "`observes` must be a tuple of names; got True"),
        ({"make": lambda config, key: None}, r"`make` must be .*make\(config, env, params"),
        ({"learn": dqn.loss}, r"`learn` must be .*learn\(config, state, key\)"),
        ({"learn": partial(dqn.learn, losss=dqn.loss)}, "got functools.*unexpected.*'losss'"),
        (
            {"learn": partial(dqn.learn, loss=lambda net: 0)},
            r"`loss` must be .*loss\(net, ",
        ),
        ({"make": Unhashable()}, "`make` must be .*unhashable"),
        ({"env": ("CartPole-v1", 1)}, "`env` must be an id, an environment .*; got \\('CartPole"),
        ({"agent": "ppo", "config": ppg.Config()}, "of ppo; got one of ppg"),
    ],
)
def test_a_part_that_does_not_fit_is_named(changes: dict[str, Any], message: str):
    with pytest.raises(ValueError, match=message):
        Setup(**({"env": "probe-Memory-v0"} | changes))


@pytest.mark.parametrize("wrapper", [TimeLimit, Trial])
def test_parameters_of_an_inner_environment_are_refused(wrapper: Any):
    env = wrapper(Memory(), 3)
    with pytest.raises(
        ValueError, match=r"`params` must be the parameters of (TimeLimit|Trial)\(Memory"
    ):
        Run(Setup((env, Memory().default_params)))
    assert Run(Setup((env, env.default_params))).program.env is not None
    other = dataclasses.replace(env.default_params, max_steps_in_episode=2)
    assert Run(Setup((env, other))).program.params == other


@dataclasses.dataclass
class Settings:
    """Of every type; that of an agent would be refused here by its annotations, as for no user."""

    blocks: int = 1
    rate: float = 0.1
    dueling: bool = True
    memory: str = "lru"


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("blocks", 2.5, "a whole number"),
        ("blocks", True, "a whole number"),
        ("rate", "fast", "a number"),
        ("dueling", 1, "True or False"),
        ("memory", None, "a name"),
    ],
)
def test_a_setting_of_another_type_is_named(setting: str, value: Any, expected: str):
    for fits in ({}, {"blocks": np.int64(2)}, {"rate": 1}, {"rate": np.float32(1)}):
        Base.check_ranges(dataclasses.replace(Settings(), **fits))
    with pytest.raises(ValueError, match=f"`{setting}` must be {expected}; got {value!r}"):
        Base.check_ranges(dataclasses.replace(Settings(), **{setting: value}))


@pytest.mark.slow
def test_settings_of_another_agent_are_refused(copy: pathlib.Path):
    with pytest.raises(ValueError, match=r"`config` must be .* of dqn; got one of r2d2\. Set"):
        Setup(env="probe-Memory-v0", config=r2d2.Config())
    with pytest.raises(RunError, match=r"setup: agent was 'dqn', is 'r2d2'\. Use"):
        Run(R2D2, copy, resume=True)


def reference_to(value: Any) -> str:
    """How a checkpoint tells of what a part was given."""
    return describe(Setup(env="probe-Memory-v0", make=partial(make_of, x=value)))["own"]["make"]


def make_of(config: Any, env: Any, params: Any, key: Any, x: Any) -> Any: ...


def test_numbers_that_a_part_was_given_are_told_apart():
    many = np.zeros(2000, np.float32)
    other = many.copy()
    other[1000] = 1
    assert reference_to(jax.numpy.array([1.0, 2.0])) != reference_to(jax.numpy.array([1.0, 3.0]))
    assert reference_to(many) == reference_to(jax.numpy.asarray(many)) != reference_to(other)
    assert reference_to(jax.random.key(0)) != reference_to(jax.random.key(1))
    assert reference_to({"b", "a", "c"}).endswith("(x={a, b, c})")  # in every process


def test_settings_may_be_numbers_of_any_kind():
    config = dataclasses.replace(SETUP.config)
    # The annotations, which tests alone enforce, would refuse these; `check_ranges` does not.
    object.__setattr__(config, "learning_rate", np.float32(0.5))
    object.__setattr__(config, "block", np.int64(2))
    report = restore(describe(dataclasses.replace(SETUP, config=config))).config
    assert (report.learning_rate, report.block) == (0.5, 2)


def test_steps_are_counted_beyond_32_bits():
    config = dataclasses.replace(SETUP.config)
    for name in ("block", "rollout", "environments"):
        object.__setattr__(config, name, np.int32(getattr(config, name)))
    assert 2**30 * config.block_steps == 2**35 and type(config.block_steps) is int


def test_flags_of_an_earlier_setup_are_what_it_observes():
    flags = {"previous_action": True, "previous_reward": False, "begin_flag": True}
    expected = {"env": "x", "observes": ["previous_action", "begin_flag"]}
    assert earlier({"env": "x", **flags}) == expected == earlier(expected)


@pytest.mark.parametrize("earlier", [{}, {"previous_reward": False}], ids=["first", "second"])
def test_earlier_runs_go_on(copy: pathlib.Path, earlier: dict[str, bool]):
    """Once each of `observes` was a flag; before R2D2 `previous_reward` was none of them."""
    header, content = checkpoint.read(copy / "checkpoint")
    assert header["setup"].pop("observes") == ["begin_flag"]
    header["setup"] |= {"previous_action": False, "begin_flag": True, **earlier}
    write(copy, header, content)
    assert runs.reopen(copy).setup == runs.saved_setup(copy) == SETUP
    assert [report.block for report in Run(setup(blocks=4), copy, resume=True)] == [4]
    write(copy, header, content)
    names = ("previous_reward", "begin_flag")
    with pytest.raises(RunError, match=r"observes was \['begin_flag'\], is \['previous_reward',"):
        Run(dataclasses.replace(SETUP, observes=names), copy, resume=True)


# Resume


def test_fewer_blocks_than_there_are_change_nothing(copy: pathlib.Path):
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    assert list(Run(setup(blocks=1), copy, resume=True)) == []
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_what_is_refused_today_can_be_opened_if_it_exists(copy: pathlib.Path, monkeypatch):
    """Earlier versions trained on batches that an episode may outlast."""
    rows = runs.reopen(copy).history

    def refuse(*_: Any) -> None:
        raise ValueError("refused")

    monkeypatch.setattr(dqn, "check", refuse)
    with pytest.raises(ValueError, match="refused"):
        Run(SETUP)
    assert runs.reopen(copy).history == Run(SETUP, copy, resume=True).history == rows


def test_a_checkpoint_holds_everything(full_run: pathlib.Path):
    run = Run(SETUP)
    reports = list(run)
    again = runs.reopen(full_run)
    assert again.setup == SETUP and len(again.history) == len(reports) == 3
    assert jax.tree.structure(again.state) == jax.tree.structure(run.state)
    assert again.state.key.dtype == run.state.key.dtype
    for ours, theirs in zip(leaves(again.state), leaves(run.state), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(again.history[2]["returns"], reports[2].returns)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4", "float16", "complex64"])
def test_a_checkpoint_holds_arrays_of_any_dtype(dtype: str, tmp_path: pathlib.Path):
    state = {"a": jnp.arange(6.0).astype(dtype).reshape(2, 3), "b": jnp.arange(3)}
    checkpoint.save(tmp_path / "state", {}, state)
    _, again = checkpoint.load(tmp_path / "state", state)
    assert again["a"].dtype == dtype
    np.testing.assert_array_equal(*(x["a"].astype(jnp.complex64) for x in (again, state)))


def test_a_checkpoint_takes_the_memory_of_one_state(tmp_path: pathlib.Path):
    state = {name: np.ones(2**20, np.float32) for name in "abcd"}
    size = sum(x.nbytes for x in state.values())
    peaks = []
    for work in (checkpoint.save, lambda path, *_: checkpoint.load(path, state)):
        tracemalloc.start()
        work(tmp_path / "state", {}, state)
        peaks.append(tracemalloc.get_traced_memory()[1] / size)
        tracemalloc.stop()
    # While it is read, the bytes of the file, those of the archive and the arrays exist.
    assert peaks[0] < 1.5 and peaks[1] < room.STATES_WITH_CHECKPOINT + 0.5, peaks


@pytest.mark.parametrize("default", ["threefry2x32", "rbg"])
def test_keys_keep_their_generator_whatever_the_default_is(default: str, tmp_path: pathlib.Path):
    keys = {kind: jax.random.key(5, impl=kind) for kind in ("threefry2x32", "rbg", "unsafe_rbg")}
    with jax.default_prng_impl(default):
        checkpoint.save(tmp_path / "keys", {}, keys)
        _, again = checkpoint.load(tmp_path / "keys", jax.eval_shape(lambda: keys))
    for kind, key in keys.items():
        assert jax.random.key_impl(again[kind]) == jax.random.key_impl(key)
        np.testing.assert_array_equal(jax.random.key_data(again[kind]), jax.random.key_data(key))


def test_a_resumed_run_equals_an_unbroken_one(full_run: pathlib.Path, tmp_path: pathlib.Path):
    compiled = runs.program("dqn", SETUP.env).block._cache_size()
    for blocks in (1, 2, 3):
        reports = list(Run(setup(blocks=blocks), tmp_path / "run", resume=blocks > 1))
        assert [report.block for report in reports] == [blocks]
    assert runs.program("dqn", SETUP.env).block._cache_size() == compiled
    assert payload(tmp_path / "run") == payload(full_run)
    rows = [json.loads((p / "results.json").read_text()) for p in (full_run, tmp_path / "run")]
    first, second = ([{**r, "seconds": 0, "blocks": 0} for r in row["history"]] for row in rows)
    assert first == second


def test_every_seed_begins_from_its_own_key():
    run = Run(setup(seeds=(7, 3)))
    keys = jax.vmap(jax.random.key)(np.array([7, 3], np.uint32))
    ours, expected = leaves(run.begin()), leaves(run.program.init(run._config, keys))
    for a, b in zip(ours, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    first, second = jax.random.key_data(run.begin().key)
    assert (first != second).any()


def test_an_interrupted_block_is_repeated(full_run: pathlib.Path, tmp_path: pathlib.Path):
    run, real = Run(SETUP, tmp_path / "run"), jax.device_get
    with pytest.MonkeyPatch.context() as patch:
        next(iter(run))
        patch.setattr(jax, "device_get", lambda x: (_ for _ in ()).throw(KeyboardInterrupt))
        before = payload(tmp_path / "run")
        with pytest.raises(KeyboardInterrupt):
            next(iter(run))
        assert len(run.history) == 1 and payload(tmp_path / "run") == before
        patch.setattr(jax, "device_get", real)
    assert [report.block for report in run] == [2, 3]
    assert payload(tmp_path / "run") == payload(full_run)


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path: pathlib.Path):
    Run(SETUP, tmp_path / "run")
    assert runs.saved_setup(tmp_path / "run") == SETUP
    assert Run(SETUP, tmp_path / "run", resume=True).history == []
    with pytest.raises(RunError, match=r"another setup: seeds was .* is \[7\]\. Use the settings"):
        Run(dataclasses.replace(SETUP, seeds=(7,)), tmp_path / "run", resume=True)
    assert runs.saved_setup(tmp_path / "run") == SETUP


def test_a_finished_run_can_be_prolonged(copy: pathlib.Path):
    assert list(Run(SETUP, copy, resume=True)) == []
    Run(setup(blocks=5), copy, resume=True)  # killed before its first new block
    assert runs.saved_setup(copy) == setup(blocks=5)
    assert [report.block for report in Run(setup(blocks=4), copy, resume=True)] == [4]


def test_without_a_path_nothing_is_written(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    next(iter(Run(SETUP)))
    assert list(tmp_path.iterdir()) == []


# Folders


def test_a_run_is_never_overwritten(copy: pathlib.Path):
    before = payload(copy)
    with pytest.raises(RunError, match=r"already contains a run.*--resume"):
        Run(SETUP, copy)
    (copy / "checkpoint").unlink()  # the results alone are worth keeping, too
    with pytest.raises(RunError, match="already contains a run"):
        Run(SETUP, copy)
    assert len(json.loads((copy / "results.json").read_text())["history"]) == 3 and before


def test_nothing_to_resume(tmp_path: pathlib.Path):
    with pytest.raises(RunError, match="no run to resume"):
        Run(SETUP, tmp_path / "run", resume=True)
    with pytest.raises(RunError, match="There is no checkpoint"):
        runs.reopen(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gamma": 0.9}, "gamma was 0.5, is 0.9"),
        ({"seeds": (0, 2)}, r"seeds was \[0, 1\], is \[0, 2\]"),
        ({"env": "probe-Match-v0"}, "env was 'probe-Memory-v0', is 'probe-Match-v0'"),
    ],
)
def test_another_setup_is_refused(changes: dict[str, Any], message: str, copy: pathlib.Path):
    with pytest.raises(RunError, match=message):
        Run(setup(**changes), copy, resume=True)


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(RunError, match="Cannot write to"):
        Run(SETUP, tmp_path / "file" / "run")
    with pytest.raises(RunError, match="Cannot write to"):
        runs.append(tmp_path / "file" / "results.jsonl", {})


def test_a_full_disk_loses_nothing(copy: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    before, run = payload(copy), Run(setup(blocks=4), copy, resume=True)
    with monkeypatch.context() as patch:

        def full(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        patch.setattr(os, "fsync", full)
        with pytest.raises(RunError, match=r"No space left on device.*intact"):
            next(iter(run))
    assert payload(copy) == before and len(run.history) == 3
    assert sorted(path.name for path in copy.iterdir()) == ["best", "checkpoint", "results.json"]
    assert [report.block for report in run] == [4]


def test_what_is_resumed_has_a_folder():
    with pytest.raises(ValueError, match=r"`path` must be .*`resume`"):
        Run(SETUP, resume=True)


def test_bad_settings_leave_no_folder(tmp_path: pathlib.Path):
    for changes in ({"memory": "lur"}, {"env": "probe-Memry-v0"}, {"agent": "dpn"}, {"tau": 2.0}):
        with pytest.raises(ValueError, match=r"`(name|env_id|agent|tau)` must"):
            Run(setup(**changes), tmp_path / "run")
    for seeds in ((), (-1,), (2**32,), (0, 0)):
        with pytest.raises(ValueError, match=r"`seeds` must be .* from 0 to"):
            Run(setup(seeds=seeds), tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Damaged and foreign files


def damage(name: str, whole: bytes) -> bytes:
    middle = len(whole) // 2
    places = {"magic": 3, "checksum": 20, "header": 200, "payload": middle, "end": len(whole) - 1}
    if name in places:
        i = places[name]
        return whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]
    cut = {"empty": 0, "cut in the header": 150, "half": middle, "one byte short": len(whole) - 1}
    return {"foreign": b"PK\x03\x04 something else\n"}.get(name) or whole[: cut.get(name, 0)]


@pytest.mark.parametrize(
    "name",
    [
        "magic",
        "checksum",
        "header",
        "payload",
        "end",
        "empty",
        "cut in the header",
        "half",
        "one byte short",
        "foreign",
    ],
)
def test_a_damaged_checkpoint_is_refused(name: str, copy: pathlib.Path):
    file = copy / "checkpoint"
    content = damage(name, file.read_bytes())
    file.write_bytes(content)
    message = "damaged or cut short|not a checkpoint"
    for attempt in (lambda: Run(SETUP, copy, resume=True), lambda: runs.reopen(copy)):
        with pytest.raises(RunError, match=message):
            attempt()
    assert file.read_bytes() == content
    assert len(json.loads((copy / "results.json").read_text())["history"]) == 3


class Harm:
    """Unpickling this creates a file."""

    def __init__(self, path: pathlib.Path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


def forge(path: pathlib.Path, payload: bytes) -> None:
    """A checkpoint with a right checksum around something else."""
    write(path, {"setup": runs.describe(SETUP), "history": []}, payload)


def test_no_pickle_is_ever_read(copy: pathlib.Path, tmp_path: pathlib.Path):
    harm, archive = Harm(tmp_path / "harmed"), io.BytesIO()
    np.savez(archive, np.array([harm], dtype=object), allow_pickle=True)
    for content in (archive.getvalue(), pickle.dumps(harm), b""):
        forge(copy, content)
        with pytest.raises(RunError, match="does not contain the arrays"):
            Run(SETUP, copy, resume=True)
    assert not (tmp_path / "harmed").exists()


def test_other_arrays_are_refused(copy: pathlib.Path):
    archive = io.BytesIO()
    np.savez(archive, np.zeros(3))
    forge(copy, archive.getvalue())
    with pytest.raises(RunError, match="does not contain the arrays"):
        Run(SETUP, copy, resume=True)


def test_a_setup_of_another_version_is_refused():
    data = runs.describe(SETUP)
    assert runs.restore(json.loads(json.dumps(data))) == SETUP
    with pytest.raises(RunError, match="another version"):
        runs.restore({**data, "config": {**data["config"], "temperature": 1.0}})
    with pytest.raises(RunError, match="another version"):
        runs.restore({k: v for k, v in data.items() if k != "agent"})


def test_foreign_results_are_refused(tmp_path: pathlib.Path):
    for content in ("{}", "not json", "[]"):
        (tmp_path / "results.json").write_text(content)
        with pytest.raises(RunError, match="not written by mmrl"):
            runs.saved_setup(tmp_path)
