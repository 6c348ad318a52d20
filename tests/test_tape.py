"""The tape against a plain Python model of it, its laws of sampling, its cost and its errors."""

import dataclasses
import itertools
import re
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from mmrl.replay import tape, tree


class Step(eqx.Module):
    """A rollout that is not the library's: `add` asks for nothing but `last`."""

    id: jax.Array
    pixels: dict
    last: jax.Array


EXAMPLE = Step(
    jnp.zeros((), jnp.int32), {"image": jnp.zeros((2, 3), jnp.uint8)}, jnp.zeros((), bool)
)


def steps(ids, last) -> Step:
    """Steps whose every leaf can be told from their id; 0 is the id of no step."""
    ids = jnp.asarray(ids, jnp.int32)
    image = jnp.broadcast_to((ids % 251)[..., None, None], (*ids.shape, 2, 3)).astype(jnp.uint8)
    return Step(ids, {"image": image}, jnp.asarray(last, bool))


@dataclasses.dataclass(frozen=True)
class Setting:
    workers: int
    depth: int  # steps in a ring
    time: int  # steps of a rollout, per worker
    batch: int
    alpha: float = 0.0
    top: int = 1024  # shape of the sum tree
    branch: int = 32
    short: int = 16

    @property
    def capacity(self) -> int:
        return self.workers * self.depth


SETTINGS = {
    "deep tree": Setting(3, 24, 5, 17, alpha=0.7, top=8, branch=3, short=8),
    "rollout as long as a ring": Setting(1, 7, 7, 30),
    "batch of one": Setting(2, 11, 4, 1, alpha=1.0, top=4, branch=2),
}
HISTORIES, CALLS = 60, 14


def record(setting: Setting, seed: int):
    """Random histories of add, sample and set_priority, and what the tape held after every one."""
    generator = np.random.default_rng(seed)
    shape = (HISTORIES, CALLS, setting.workers, setting.time)
    often = generator.choice([0.02, 0.1, 0.3, 0.8], HISTORIES)
    last = generator.random(shape) < often[:, None, None, None]
    ids = 1 + np.broadcast_to(np.arange(np.prod(shape[1:])).reshape(shape[1:]), shape)

    def call(t, x):
        ids, last, key = x
        now, later = jax.random.split(key)
        drawn = tape.sample(t, now, setting.batch)
        values = jax.random.uniform(later, drawn.rows.shape, minval=0.1, maxval=9.0)
        after = tape.set_priority(t, drawn.rows, values)
        return tape.add(after, steps(ids, last)), (t, tape.valid(t), drawn, values)

    def history(ids, last, key):
        empty = tape.init(EXAMPLE, setting.capacity, workers=setting.workers, alpha=setting.alpha)
        keys = jax.random.split(key, CALLS)
        end, trace = jax.lax.scan(call, empty, (jnp.asarray(ids), jnp.asarray(last), keys))
        again = tree.build(tape._weights(end.length, end.priority, end.alpha))
        return end, again, trace

    keys = jax.random.split(jax.random.key(seed), HISTORIES)
    return ids, last, jax.device_get(jax.jit(jax.vmap(history))(ids, last, keys))


class Model:
    """What a tape should be: all steps ever added, and a list of the episodes among them."""

    def __init__(self, setting: Setting):
        self.setting, self.head, self.peak = setting, 0, 1.0
        self.open = [[] for _ in range(setting.workers)]
        self.closed = []  # (worker, head at its first step, ids)
        self.priority = {}  # of (worker, first)

    def add(self, ids, last):
        for w, i in np.ndindex(ids.shape):
            self.open[w].append((self.head + i, int(ids[w, i])))
            if last[w, i]:
                first = self.open[w][0][0]
                self.closed.append((w, first, [step for _, step in self.open[w]]))
                self.priority[w, first] = self.peak
                self.open[w] = []
        self.head += ids.shape[1]

    def live(self):
        """Whole episodes no step of which has been overwritten."""
        return [e for e in self.closed if e[1] >= self.head - self.setting.depth]

    def row(self, w, first):
        return w * self.setting.depth + first % self.setting.depth


def at(tree, *index):
    return jax.tree.map(lambda x: x[index], tree)


def check_table(model: Model, t: tape.Tape) -> None:
    length = np.zeros(model.setting.capacity, np.int32)
    priority = np.array(t.priority)
    for w, first, ids in model.live():
        row = model.row(w, first)
        assert length[row] == 0, "two episodes in a row"
        length[row], priority[row] = len(ids), model.priority[w, first]
    np.testing.assert_array_equal(t.length, length)
    np.testing.assert_array_equal(t.priority, priority)
    assert t.peak == np.float32(model.peak)


def check_sample(model: Model, drawn: tape.Sample, seen: Counter) -> list:
    """Whole live episodes, none twice, only the last cut, as many as there are."""
    setting, live = model.setting, {e[2][0]: e for e in model.live()}
    count = int(drawn.mask.sum())
    stored = sum(len(e[2]) for e in live.values())
    assert count == min(stored, setting.batch)
    np.testing.assert_array_equal(drawn.mask, np.arange(setting.batch) < count)
    ids = drawn.steps.id[:count]
    assert len(set(ids.tolist())) == count, "a step twice"
    assert all(not x[count:].any() for x in jax.tree.leaves(drawn.steps)), "data without a mask"
    assert drawn.begin[count:].all()
    np.testing.assert_array_equal(
        drawn.steps.pixels["image"][:count], np.tile((ids % 251)[:, None, None], (1, 2, 3))
    )
    runs = np.split(ids, np.flatnonzero(drawn.begin[:count])[1:]) if count else []
    episodes = [live[int(run[0])] for run in runs]
    for i, (run, (w, first, whole)) in enumerate(zip(runs, episodes, strict=True)):
        assert list(run) == whole[: len(run)]
        assert len(run) == len(whole) or i == len(runs) - 1, "cut, but not the last"
        assert drawn.rows[i] == model.row(w, first)
        np.testing.assert_array_equal(
            np.flatnonzero(drawn.episode[:count] == i), np.isin(ids, run).nonzero()[0]
        )
    assert (drawn.rows[len(runs) :] == setting.capacity).all(), "a row that was not sampled"
    quick = -(-setting.batch // setting.short)
    seen["no episode"] += not live
    seen["one episode"] += len(live) == 1
    seen["batch not full"] += 0 < count < setting.batch
    seen["batch full"] += count == setting.batch
    seen["last cut"] += bool(runs) and len(runs[-1]) < len(episodes[-1][2])
    seen["longer race"] += len(runs) > quick
    return episodes


def count_cases(model: Model, before: list, time: int, seen: Counter) -> None:
    live, start = model.live(), model.head - model.setting.depth
    gone = [e for e in before if e not in live]
    seen["evicted"] += bool(gone)
    seen["several evicted at once"] += len(gone) > 1
    dead = [e for e in model.closed if e[1] < start]
    seen["partly overwritten"] += any(e[1] + len(e[2]) > start for e in dead)
    seen["around the ring"] += any(
        e[1] // model.setting.depth != (e[1] + len(e[2]) - 1) // model.setting.depth for e in live
    )
    new = [e for e in model.closed if e[1] + len(e[2]) > model.head - time]
    seen["continued from an earlier rollout"] += any(
        e[1] < model.head - time for e in new if e in live
    )
    seen["too long for a ring"] += any(len(e[2]) > model.setting.depth for e in new)
    seen["overwritten by the rollout that ends it"] += any(
        e[1] < start and len(e[2]) <= model.setting.depth for e in new
    )
    seen["fills the ring"] += any(len(e[2]) == model.setting.depth for e in live)
    seen["several in one rollout"] += len({e[0] for e in new}) < len(new)
    seen["still open"] += any(model.open)


# What no history of a setting can reach.
NEVER = {
    "deep tree": set(),
    # A rollout overwrites all that was there before.
    "rollout as long as a ring": {
        "batch full",
        "last cut",
        "around the ring",
        "continued from an earlier rollout",
    },
    "batch of one": {"batch not full", "longer race"},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_equals_a_plain_model(name, monkeypatch):
    setting = SETTINGS[name]
    monkeypatch.setattr(tree, "TOP", setting.top)
    monkeypatch.setattr(tree, "BRANCH", setting.branch)
    monkeypatch.setattr(tape, "SHORT", setting.short)
    ids, last, (end, again, (tapes, valid, samples, values)) = record(setting, seed=0)
    seen = Counter()
    for history in range(HISTORIES):
        model = Model(setting)
        for call in range(CALLS):
            now = at(tapes, history, call)
            check_table(model, now)
            np.testing.assert_array_equal(valid[history, call], now.length > 0)
            episodes = check_sample(model, at(samples, history, call), seen)
            for i, (w, first, _) in enumerate(episodes):
                model.priority[w, first] = values[history, call, i]
                model.peak = max(model.peak, values[history, call, i])
            before = model.live()
            model.add(ids[history, call], last[history, call])
            count_cases(model, before, setting.time, seen)
        check_table(model, at(end, history))
        seen["priorities differ"] += len(set(model.priority.values())) > 1
    for ours, wanted in zip(end.sums, again, strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-6, atol=0)
    never = {case for case, times in seen.items() if times == 0}
    assert never == NEVER[name], dict(seen)
