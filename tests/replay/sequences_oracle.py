"""What a storage of sequences should hold: lists of all steps ever added, cut up by plain loops."""

import dataclasses
from collections import Counter

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from mmrl.replay import sequences, tree


class Step(eqx.Module):
    id: jax.Array
    pixels: dict
    begin: jax.Array
    last: jax.Array


EXAMPLE = Step(
    np.zeros((), np.int32),
    {"image": np.zeros((2, 1), np.uint8)},
    np.zeros((), bool),
    np.zeros((), bool),
)
STATE = {"h": np.zeros(2, np.float32), "id": np.zeros((), np.int32)}
AWAY = 1_000_000  # the state before step i has the id AWAY + i


def steps(ids, last) -> tuple[Step, dict]:
    """Steps and states of [worker, time] whose every leaf can be told from the id; 0 is no step."""
    xp = np if isinstance(ids, np.ndarray) else jnp  # numpy does not compile
    ids, last = xp.asarray(ids, "int32"), xp.asarray(last, bool)
    image = xp.broadcast_to((ids % 251)[..., None, None], (*ids.shape, 2, 1)).astype("uint8")
    carry = xp.broadcast_to(ids[..., None], (*ids.shape, 2)).astype("float32")
    # `add` knows where episodes begin from `last`.
    return Step(ids, {"image": image}, xp.zeros_like(last), last), {"h": carry, "id": ids + AWAY}


@dataclasses.dataclass(frozen=True)
class Setting:
    workers: int
    depth: int  # steps in a ring
    time: int  # steps of a rollout, per worker
    length: int
    overlap: int
    burn_in: int
    tail: int
    alpha: float = 0.9
    eta: float = 0.9
    top: int = 1024  # shape of the sum tree
    branch: int = 32

    @property
    def capacity(self) -> int:
        return self.workers * self.depth

    @property
    def period(self) -> int:
        return self.length - self.overlap

    @property
    def sizes(self) -> dict:
        names = ("workers", "length", "overlap", "burn_in", "tail", "alpha", "eta")
        return {name: getattr(self, name) for name in names}


@dataclasses.dataclass(frozen=True)
class Place:
    """A sequence, by counts that grow for ever: of its worker's steps, and of its episode's."""

    worker: int
    first: int  # of the worker's steps
    past: int  # steps of the episode before it
    steps: int  # with the tail
    time: int  # the worker's steps when it was whole
    at_end: bool  # the episode, with its last step


def cuts(steps: int, length: int, overlap: int) -> list[int]:
    """Where the sequences of an episode of so many steps begin: each brings a step that is new."""
    results, start = [0], length - overlap
    while start + overlap < steps:
        results.append(start)
        start += length - overlap
    return results


class Model:
    """All steps, all whole sequences with their priorities, and which of them may be stored."""

    def __init__(self, setting: Setting):
        self.setting, self.head = setting, 0
        self.ids = [[] for _ in range(setting.workers)]
        self.errors = [[] for _ in range(setting.workers)]
        self.opened = [0] * setting.workers  # where the episode in progress began
        self.closed = []  # (worker, first, end) of every episode that ended
        self.priority = {}  # of every Place

    def add(self, ids, last, errors) -> list[Place]:
        """The sequences that became whole, in the order of their last steps."""
        new = []
        for w, i in np.ndindex(ids.shape):
            self.ids[w].append(int(ids[w, i]))
            self.errors[w].append(float(errors[w, i]))
            new += self._add_places(w, bool(last[w, i]))
            if last[w, i]:
                self.closed.append((w, self.opened[w], len(self.ids[w])))
                self.opened[w] = len(self.ids[w])
        self.head += ids.shape[1]
        return new

    def _add_places(self, w: int, at_end: bool) -> list[Place]:
        here, end, result = self.setting, len(self.ids[w]), []
        full = here.length + here.tail
        for start in cuts(end - self.opened[w], here.length, here.overlap):
            steps = end - self.opened[w] - start
            if steps == full or (at_end and steps < full):
                place = Place(w, self.opened[w] + start, start, steps, end, at_end)
                result.append(place)
                sizes = np.array(self.errors[w][place.first : place.first + self.own_steps(place)])
                self.priority[place] = here.eta * sizes.max() + (1 - here.eta) * sizes.mean()
        return result

    def own_steps(self, place: Place) -> int:
        return min(place.steps, self.setting.length)

    def row(self, place: Place) -> int:
        return place.worker * self.setting.depth + place.first % self.setting.depth

    def may(self) -> dict[int, Place]:
        """Sequences no step of whose window has been overwritten, by their rows."""
        begin = self.head - self.setting.depth
        burn_in = self.setting.burn_in
        live = [p for p in self.priority if p.first - min(burn_in, p.past) >= begin]
        rows = {self.row(p): p for p in live}
        assert len(rows) == len(live), "two sequences in a row"
        return rows

    def must(self) -> set[int]:
        """Rows of sequences that stay a prefix and a period away from the place written next."""
        begin = self.head - self.setting.depth + self.setting.burn_in + self.setting.period
        return {self.row(p) for p in self.priority if p.first >= begin}

    def window(self, place: Place) -> dict[str, np.ndarray]:
        """Ids, masks and begin of the prefix, the trained steps and the tail; id 0 is no step."""
        here = self.setting
        results = {"id": [], "mask": [], "loss_mask": [], "begin": []}
        for at in range(-here.burn_in, here.length + here.tail):
            real = -place.past <= at < place.steps
            results["id"].append(self.ids[place.worker][place.first + at] if real else 0)
            results["mask"].append(real)
            results["loss_mask"].append(real and 0 <= at < here.length)
            results["begin"].append(at == -place.past)
        return {name: np.array(values) for name, values in results.items()}


def at(tree, *index):
    return jax.tree.map(lambda x: x[index], tree)


def check_table(model: Model, table) -> None:
    """Stored: nothing but whole windows, and all that are far from the place written next."""
    available, past, weights, count = table
    may, rows = model.may(), set(np.flatnonzero(available).tolist())
    assert count == len(rows), "another number of sequences"
    assert rows <= set(may), "a sequence that is not whole"
    assert model.must() <= rows, "a sequence is missing"
    expected = np.zeros_like(weights)
    for row in rows:
        place = may[row]
        assert (available[row], past[row]) == (place.steps, place.past), "cut elsewhere"
        priority = np.clip(model.priority[place], *tree.PRIORITIES)
        expected[row] = priority**model.setting.alpha
    np.testing.assert_allclose(weights, expected, rtol=2e-5)


def check_window(model: Model, batch, i: int, counts: Counter) -> None:
    setting, place = model.setting, model.may()[int(batch.rows[i])]
    expected, result = model.window(place), at(batch, i)
    np.testing.assert_array_equal(result.steps.id, expected["id"])
    np.testing.assert_array_equal(result.steps.pixels["image"][:, 1, 0], expected["id"] % 251)
    for name in ("mask", "loss_mask", "begin"):
        np.testing.assert_array_equal(getattr(result, name), expected[name], name)
    # Where the window holds the episode's first step, `begin` wipes any state.
    if place.past > setting.burn_in:
        before = model.ids[place.worker][place.first - setting.burn_in]
        assert result.state["id"] == AWAY + before, "the state of another step"
        np.testing.assert_array_equal(result.state["h"], np.float32([before, before]))
    begin, depth = place.first - min(place.past, setting.burn_in), setting.depth
    counts["prefix cut by the begin"] += 0 < place.past < setting.burn_in
    counts["whole prefix"] += place.past > setting.burn_in
    counts["around the ring"] += begin // depth != (place.first + place.steps - 1) // depth
    counts["episode still open"] += place.first - place.past == model.opened[place.worker]
    counts["in a later ring of its episode"] += place.past >= depth


def check_sample(model: Model, table, batch, beta: float, counts: Counter) -> None:
    capacity, (available, _, weights, count) = model.setting.capacity, table
    counts["empty"] += count == 0
    if not count:
        assert (batch.rows == capacity).all() and not batch.mask.any() and not batch.loss_mask.any()
        assert not batch.begin.any() and (batch.weights == 1).all()
        assert all(not x.any() for x in jax.tree.leaves(batch.steps))
        return
    assert (available[batch.rows] > 0).all(), "drawn, but not stored"
    share = count * weights[batch.rows].astype(float) / weights.sum(dtype=float)
    np.testing.assert_allclose(batch.weights, share**-beta / (share**-beta).max(), rtol=1e-5)
    for i in range(len(batch.rows)):
        check_window(model, batch, i, counts)


def count_new(model: Model, new: list, counts: Counter) -> None:
    setting = model.setting
    for place in new:
        short = place.steps < setting.length
        counts["one-step episode"] += place.steps == 1 and place.past == 0
        counts["episode shorter than a sequence"] += short and place.past == 0 and place.steps > 1
        counts["short last sequence"] += short and place.past > 0
        cut = place.steps < setting.length + setting.tail
        counts["tail cut by the end"] += cut and not short
        counts["whole tail at the end"] += place.at_end and not cut
        counts["begun in an earlier rollout"] += place.first < model.head - setting.time
    ends = Counter((place.worker, place.time) for place in new)
    counts["several pending at an end"] += max(ends.values(), default=0) > 1
    counts["several ends in a rollout"] += len(ends) > len({w for w, _ in ends})
    counts["ring overwritten"] += model.head > setting.depth


def check_every_step_is_trained(model: Model, everything, counts: Counter) -> None:
    """Of every episode that is stored whole, the steps, the terminal one included."""
    ids = everything.steps.id[everything.loss_mask]
    begin = model.head - model.setting.depth + model.setting.burn_in + model.setting.period
    for w, first, end in model.closed:
        if first >= begin:
            assert set(model.ids[w][first:end]) <= set(ids.tolist()), "never trained"
            counts["whole episode trained on"] += 1


# Eager calls would compile every operation on its own.
add = jax.jit(sequences.add)
sample = jax.jit(sequences.sample, static_argnums=2)
set_priority = jax.jit(sequences.set_priority)
window = jax.jit(sequences.window, static_argnums=2)
SMALL = {"length": 4, "overlap": 2, "burn_in": 1, "tail": 1}


def storage_of(lengths, capacity, errors=None, **options) -> sequences.Sequences:
    """Episodes of these lengths by one worker, ids counting from 1."""
    last = np.zeros((1, sum(lengths)), bool)
    last[0, np.cumsum(lengths) - 1] = True
    ids = 1 + np.arange(last.size)[None]
    errors = np.ones(last.shape, np.float32) if errors is None else errors[None]
    t = jax.jit(lambda: sequences.init(EXAMPLE, STATE, capacity, **{**SMALL, **options}))()
    return add(t, *steps(ids, last), errors)


def begins(t) -> np.ndarray:
    return np.flatnonzero(t.available)


def weights(t) -> np.ndarray:
    """p^α of the sequences that begin in these rows."""
    return np.array(tree.weights(t.sums, jnp.asarray(begins(t)))[:, 0])


def assert_same(a, b, rtol=0.0) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=rtol), a, b)
