"""Exercises for chapter 03: memory monoids."""

from typing import Any

import numpy as np

from mmrl.course.exercises.answers import Exercise, Mistake

Tape = np.ndarray


def _features(rng: np.random.Generator) -> list[tuple[Tape, Tape]]:
    sizes = [(4, 3, 2), (9, 2, 5), (1, 4, 3), (30, 5, 4)]
    return [(rng.uniform(0, 2, (n, key)), rng.normal(size=(n, value))) for n, key, value in sizes]


attention_state = Exercise(
    "3.1",
    solution=lambda features, values: (features.T @ values, features.sum(axis=0)),
    cases=_features,
    mistakes=(
        Mistake(
            lambda features, values: (features.T @ values, features[-1]),
            "A is right, but a is only the last feature. The denominator of Eq. 3.2 needs the sum "
            "of all of them.",
        ),
        Mistake(
            lambda features, values: (values.T @ features, features.sum(axis=0)),
            "A is transposed. It must be φ(k) vᵀ, with one row for each entry of the feature.",
        ),
        Mistake(
            lambda features, values: (np.outer(features[-1], values[-1]), features.sum(axis=0)),
            "A contains only the outer product of the last step. The state is the sum over all "
            "steps.",
        ),
        Mistake(
            lambda features, values: (
                np.outer(features.sum(axis=0), values.sum(axis=0)),
                features.sum(axis=0),
            ),
            "A is the product of two sums, which pairs every key with every value. Take the outer "
            "product at each step first, and then sum over the steps.",
        ),
        Mistake(
            lambda features, values: (
                features.T @ values / len(values),
                features.sum(axis=0) / len(values),
            ),
            "these are means over the tape. Their quotient is right, but a mean cannot be updated "
            "by adding a term, so the state must contain the sums.",
        ),
        Mistake(
            lambda features, values: (features.T @ values, values.sum(axis=0)),
            "A is right, but a is the sum of the values. It must be the sum of the features.",
        ),
        Mistake(
            lambda features, values: (
                features.T @ values / features.sum(axis=0)[:, None],
                features.sum(axis=0),
            ),
            "a is right, but A has already been divided by it. The decoder divides, after it has "
            "multiplied both by the query. The state contains the two sums.",
        ),
    ),
)


def _retention(gain: float, keys: Tape, values: Tape, queries: Tape) -> Tape:
    """Compute s_t = Σ_{j ≤ t} λ^{t-j} (q_t·k_j) v_j as a matrix product."""
    t = np.arange(len(keys))
    fade = np.where(t[:, None] >= t, float(gain) ** np.maximum(t[:, None] - t, 0), 0)
    return (fade * (queries @ keys.T)) @ values


def _tapes(rng: np.random.Generator) -> list[tuple[Any, ...]]:
    def case(gain: float, length: int, key: int, value: int) -> tuple[Any, ...]:
        k, q = rng.normal(size=(2, length, key))
        v = rng.normal(size=(length, value))
        return gain, *(x.astype(np.float32) for x in (k, v, q))

    return [case(0.9, 12, 3, 2), case(0.5, 7, 1, 4), case(0.99, 40, 4, 4), case(0.8, 3, 2, 1)]


def _early(gain: float, keys: Tape, values: Tape, queries: Tape) -> Tape:
    """Use weights λ^j instead of λ^{t-j}."""
    weights = float(gain) ** np.arange(len(keys))
    return np.tril(queries @ keys.T * weights) @ values


def _own_gain(gain: float, keys: Tape, values: Tape, queries: Tape) -> Tape:
    """Scale the running sum by the gain accumulated before the step instead of the step's gain."""
    before, total, read = 1.0, 0.0, []
    for k, v, q in zip(keys, values, queries, strict=True):
        before, total = before * gain, before * total + np.outer(k, v)
        read.append(q @ total)
    return np.array(read)


retention = Exercise(
    "3.2",
    solution=_retention,
    cases=_tapes,
    mistakes=(
        Mistake(
            lambda gain, k, v, q: np.tril(q @ k.T) @ v,
            "this has no decay, so it is linear attention without the denominator. Multiply the "
            "earlier sum by the gain of the later element.",
        ),
        Mistake(
            lambda gain, k, v, q: gain * _retention(gain, k, v, q),
            "the newest item has already decayed, because λ multiplies k vᵀ too. Multiply only the "
            "earlier sum by λ.",
        ),
        Mistake(
            lambda gain, k, v, q: _retention(gain, k, v, q) - np.sum(q * k, 1)[:, None] * v,
            "the sum stops before step t, but it must include the key and the value of step t.",
        ),
        Mistake(
            _early,
            "the weights are λ^j, so the newest item decays most. Multiply the sum of the earlier "
            "element `a` by the gain of `b`, not the other way around.",
        ),
        Mistake(
            _own_gain,
            "the earlier sum is multiplied by its own gain, a[0] · a[1] + b[1]. It decays during "
            "the later element, so multiply it by that gain: b[0] · a[1] + b[1].",
        ),
        Mistake(
            lambda gain, k, v, q: np.tril(k @ q.T) @ v,
            "keys and queries are swapped: add k vᵀ to the state, and multiply the state by q.",
        ),
    ),
    tolerance=1e-3,
)

Cue = tuple[float, bool]


def _cues(rng: np.random.Generator) -> list[tuple[Cue, Cue]]:
    def piece(flag: bool) -> Cue:
        return (float(rng.normal()) if flag else 0.0, flag)

    flags = [(True, False), (False, True), (True, True), (False, False), (True, True)]
    return [(piece(a), piece(b)) for a, b in flags]


keep_first = Exercise(
    "3.3",
    solution=lambda a, b: (a[0] if a[1] else b[0], a[1] or b[1]),
    cases=_cues,
    mistakes=(
        Mistake(
            lambda a, b: (b[0] if b[1] else a[0], a[1] or b[1]),
            "if both parts have a cue, this keeps the later cue. `a` comes first.",
        ),
        Mistake(
            lambda a, b: a,
            "this ignores `b`. If `a` has no cue, the cue of `b` is the first one.",
        ),
        Mistake(
            lambda a, b: (a[0], a[1] or b[1]),
            "a part without a cue must let a later cue through. Here (0.0, False) • b loses the "
            "cue of b, so (0.0, False) is not a left identity.",
        ),
        Mistake(
            lambda a, b: (a[0] + b[0], a[1] or b[1]),
            "if both parts have a cue, this adds the two cues. Keep only the first one.",
        ),
        Mistake(
            lambda a, b: (a[0] if a[1] else b[0], a[1] and b[1]),
            "the value is right, but the flag must be True if either part has a cue, not only if "
            "both do.",
        ),
        Mistake(
            lambda a, b: (a[0] if a[1] else b[0], b[1]),
            "the value is right, but the flag of `a` is lost, so a later combine would overwrite "
            "the cue of `a`.",
        ),
        Mistake(
            lambda a, b: (a[0] if a[1] else b[0], a[1]),
            "the value is right, but the flag of `b` is lost, so a later combine would overwrite "
            "the cue of `b`.",
        ),
    ),
)
