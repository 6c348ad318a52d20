"""Gates, which are conditions that a memory must satisfy before its score is accepted.

A gate checks a property that returns do not reveal. For example, a memory that peeks at the future
may score higher than others. `judge` tests the memory with its initial parameters and with
perturbed parameters, because a law that holds only at initialization would be broken by the first
gradient step. All gates except the budget test a small memory.

    contract    the memory can be built and called, and the shape of its state is constant
    budget      the size of the state and the number of parameters are limited
    future      y_t does not depend on x_{t+1}, x_{t+2}, …
    episodes    no information crosses a `begin`, not even a NaN, in any mode of reading
    step        a tape, single steps and `lookahead` give the same outputs, in any combination
    laws        (a • b) • c = a • (b • c), e • a = a = a • e, for elements from `encode`
    gradients   gradients through 10,000 steps are finite and do not explode
    memory      the first observation can be decoded from a later output
"""

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Integer, PyTree

from mmrl._own import one_line
from mmrl.course.capstone.probes import PASTS, READERS, behavior_of, gradients, law_errors
from mmrl.memory import Memory

Factory = Callable[..., Any]
"""Class of a memory or function that builds it: (input_size, output_size, *, key) -> memory."""
SIZE, WIDTH = 6, 32  # input and output size of the memory in the gates, and in training
MOST_STATE, MOST_PARAMETERS = 512, 32_768  # budget, sufficient for every memory of the library
LAWS, EQUAL, GROWTH, LEAST_SHARE = 1e-4, 1e-4, 1e3, 0.5
"""Limits: error of a law, error of an equality, growth of a gradient, fraction of cues decoded."""
LAGS = (1, 2, 4, 8, 16, 32)
# Pairs of modes that read the first and the second half of an episode. Pairs of equal modes come
# first, so that an error in a single mode is reported before errors in combinations.
WAYS = sorted(itertools.product(READERS, READERS), key=lambda way: way[0] != way[1])


class GateResult(NamedTuple):
    """Result of the gates for a memory."""

    refusals: dict[str, str]  # reason to refuse the memory, or "", keyed by gate
    state: int  # size of the state in real scalars
    parameters: int  # number of trainable real scalars
    remembers: int  # longest of `LAGS` after which the first observation can be decoded

    @property
    def passed(self) -> bool:
        """True if all gates accept the memory."""
        return not any(self.refusals.values())


def judge(factory: Factory) -> GateResult:
    """Run every gate. If the contract is broken, the other gates are not run."""
    refusals = {"contract": contract(factory)}
    if refusals["contract"]:
        return GateResult(refusals, 0, 0, 0)
    state, parameters = sizes(factory)
    refusals["budget"] = budget(state, parameters)
    pair = both(factory)
    behavior = behavior_of(pair, SIZE, max(LAGS))
    refusals |= {"future": future(behavior), "episodes": episodes(behavior), "step": step(behavior)}
    refusals |= {"laws": laws(pair), "gradients": gradient(pair)}
    refusals["memory"], remembers = memory_span(behavior)
    return GateResult(refusals, state, parameters, remembers)


def build(factory: Factory, size: int = SIZE) -> Any:
    """Build the memory with equal input and output sizes and a fixed key."""
    return factory(size, size, key=jax.random.key(0))


def both(factory: Factory) -> Any:
    """Return a memory with the initial and the perturbed parameters, stacked on a new first axis.

    The perturbation is normal, with a standard deviation of 0.3 times the root mean square of the
    array, and at least 0.03, because many arrays are initially zero.
    """
    model = build(factory)
    floats, rest = eqx.partition(model, eqx.is_inexact_array)
    leaves, structure = jax.tree.flatten(floats)
    rng, pairs = np.random.default_rng(0), []
    for x in map(np.asarray, leaves):
        size = max(0.3 * float(np.sqrt(np.mean(np.abs(x) ** 2))), 0.03) if x.size else 0.0
        pair = np.stack([x, x + size * rng.normal(size=x.shape)])
        pairs.append(jnp.asarray(pair, x.dtype))
    return eqx.combine(jax.tree.unflatten(structure, pairs), rest)


def contract(factory: Factory) -> str:
    """Return a refusal if the memory cannot be built or called, or its state changes shape."""
    try:
        model = eqx.filter_eval_shape(build, factory)
        eqx.filter_eval_shape(build, factory, WIDTH)
    except Exception as error:
        return (
            "It cannot be built: it must take (input_size, output_size, *, key), and defaults for "
            f"all other arguments, for sizes such as {SIZE} and {WIDTH}; {one_line(error)}."
        )
    missing = [n for n in ("init", "__call__", "step", "lookahead") if not hasattr(model, n)]
    if missing:
        return f"It lacks {', '.join(missing)}: inherit from `mmrl.memory.Memory`."
    for length in (5, 9):
        try:
            start, ends = eqx.filter_eval_shape(_ends, build(factory), length)
        except Exception as error:
            return (
                f"It cannot read {length} steps over a tape, step by step and by `lookahead`: "
                f"{one_line(error)}."
            )
        for name, (end, *outputs) in ends.items():
            if _shapes(end) != _shapes(start):
                return (
                    f"Its state changes its shape: {_shapes(start)} at the start, {_shapes(end)} "
                    f"after {name} of {length} steps. A state that grows with the tape is not a "
                    "summary of it: keep it at one size."
                )
            for ys in outputs:
                if ys.shape != (length, SIZE):
                    return (
                        f"Its outputs after {name} must be [{length}, {SIZE}], a row for each "
                        f"step; they are {list(ys.shape)}."
                    )
    return ""


def _ends(model: Any, length: int) -> tuple[PyTree, dict[str, Any]]:
    xs, begin = jnp.zeros((length, SIZE)), jnp.zeros(length, bool)
    start = jax.tree.map(jnp.asarray, model.init())
    state, ys = start, []
    for t in range(length):
        state, y = model.step(state, xs[t], begin[t])
        ys.append(y)
    return start, {
        "a tape": model(start, xs, begin),
        "single steps": (state, jnp.stack(ys)),
        "`lookahead`": model.lookahead(start, xs, begin, xs),
    }


def _shapes(tree: PyTree) -> Any:
    return jax.tree.map(lambda x: f"{x.dtype}{list(x.shape)}", tree)


def sizes(factory: Factory) -> tuple[int, int]:
    """Count the scalars in the state and in the parameters of a memory.

    A complex scalar counts as two.
    """
    model = build(factory, WIDTH)

    def count(tree: PyTree, kind: Callable) -> int:
        leaves = jax.tree.leaves(eqx.filter(tree, kind))
        return sum(x.size * (1 + jnp.iscomplexobj(x)) for x in leaves)

    return count(model.init(), eqx.is_array), count(model, eqx.is_inexact_array)


def budget(state: int, parameters: int) -> str:
    """Return a refusal if the memory is too large for a fair comparison, otherwise ""."""
    if state > MOST_STATE:
        return (
            f"Its state has {state} numbers at width {WIDTH}; at most {MOST_STATE} are allowed. "
            "Make it smaller, so that scores can be compared fairly."
        )
    if parameters > MOST_PARAMETERS:
        return (
            f"It has {parameters} trainable numbers at width {WIDTH}; at most {MOST_PARAMETERS} "
            "are allowed: make its layers narrower."
        )
    return ""


def future(behavior: dict[str, Any]) -> str:
    """Return a refusal if earlier outputs depend on later observations, otherwise ""."""
    cut = behavior["cut"]
    at = _differs(behavior["later changed"][:, :cut], behavior["whole"][:, :cut])
    if at is None:
        return ""
    return (
        f"It peeks at the future: its output at step {at} changes although only observations from "
        f"step {cut} on have changed. An agent that acts does not know the future."
    )


def episodes(behavior: dict[str, Any]) -> str:
    """Return a refusal if outputs after a `begin` depend on earlier steps, otherwise ""."""
    tapes = np.stack([behavior[name] for name in ("clean", *PASTS)], axis=1)
    read = {"over a tape": tapes} | {_words(*way): behavior["ways"][way] for way in WAYS}
    read["in the outputs of `lookahead` for the next step"] = behavior["next"][:, :, :-1]
    for how, ys in read.items():
        after = ys[:, :, behavior["cut"] :]
        for i, what in enumerate(PASTS.values(), 1):
            at = _differs(after[:, i], after[:, 0])
            if at is not None:
                return (
                    f"It leaks over the end of an episode: {what} changes the output {at} "
                    f"steps after a `begin`, {how}. Forget with `where`, as `Resettable` does; 0 "
                    "times NaN is NaN."
                )
    return ""


def step(behavior: dict[str, Any]) -> str:
    """Return a refusal if the modes of reading disagree, otherwise ""."""
    clean, cut = behavior["clean"], behavior["cut"]
    for way in WAYS:
        if (error := _apart(behavior["ways"][way][:, 0], clean)) >= EQUAL:
            return _disagree(f"{_words(*way)} its outputs differ from those over one tape", error)
    ahead, later = (
        np.delete(ys, cut - 1, axis=1) for ys in (behavior["next"][:, 0, :-1], clean[:, 1:])
    )
    if (error := _apart(ahead, later)) >= EQUAL:
        return _disagree("`lookahead` differs from one more step of the tape", error)
    return ""


def _words(first: str, then: str) -> str:
    if first == then:
        return "over a tape in two parts" if first == "tape" else READERS[first]
    return f"{READERS[first]} at first and then {READERS[then]}"


def _apart(got: np.ndarray, want: np.ndarray) -> float:
    error = float(np.max(np.abs(got - want)) / max(1e-6, float(np.max(np.abs(want)))))
    return np.inf if np.isnan(error) else error


def _disagree(what: str, error: float) -> str:
    return (
        f"Acting and learning disagree: {what}, by {error:.1g} of the largest output. The "
        "agent would learn a policy other than the one it plays."
    )


def laws(pair: Any) -> str:
    """Return a refusal if the memory violates a monoid law on its encodings, otherwise "".

    Recurrences that are not instances of `Memory` pass.
    """
    if not isinstance(pair, Memory):
        return ""
    for law, by_model in law_errors(pair, SIZE).items():
        worst = float(np.max(by_model))
        if not worst < LAWS:
            which = "perturbed" if by_model[0].max() < LAWS else "initial"
            return (
                f"Its operation is not a monoid: {law} fails by {worst:.1g} with {which} "
                "parameters, so a parallel scan would differ from a loop."
            )
    return ""


def gradient(pair: Any) -> str:
    """Return a refusal if gradients through 10,000 steps are not finite or grow 1,000-fold."""
    finite, early, late = gradients(pair, SIZE)
    if not finite.all():
        return (
            "Its gradient through 10,000 steps is not finite, because a factor grows from step to "
            "step. Keep the factors of the recurrence at 1 or below."
        )
    growth = early / np.maximum(late, 1e-30)
    if not growth.max() < GROWTH:
        return (
            f"Its gradient explodes: the first of 10,000 observations has {growth.max():.1g} times "
            "the influence of the latest. Keep the factors of the recurrence at 1 or below."
        )
    return ""


def memory_span(behavior: dict[str, Any]) -> tuple[str, int]:
    """Return a refusal if the memory forgets the first observation, and the longest lag."""
    shares = [
        max(_decodable(one[:, k], behavior["cues"]) for one in behavior["probe"]) for k in LAGS
    ]
    longest = max(
        (k for k, share in zip(LAGS, shares, strict=True) if share >= LEAST_SHARE), default=0
    )
    if longest:
        return "", longest
    return (
        f"It remembers nothing: one step later, the first of {SIZE} cards can be decoded from its "
        f"output in only {shares[0]:.0%} of cases, no more than by guessing. Does `decode` read "
        "the state?",
        0,
    )


def _decodable(ys: Float[np.ndarray, "tape out"], cues: Integer[np.ndarray, " tape"]) -> float:
    """Return the fraction of cues that can be decoded from the outputs.

    The classifier computes the mean output for each cue on the first half of the tapes, and selects
    the nearest mean on the second half. Noise of 1 % of the outputs' size hides traces of the cue
    that are too weak for learning.
    """
    rng, half = np.random.default_rng(1), len(cues) // 2
    ys = ys + 0.01 * np.sqrt(np.mean(ys**2)) * rng.normal(size=ys.shape)
    means = np.stack([ys[:half][cues[:half] == cue].mean(0) for cue in range(SIZE)])
    guesses = np.argmin(np.sum((ys[half:, None] - means) ** 2, axis=-1), axis=1)
    return float(np.mean(guesses == cues[half:]))


def _differs(
    got: Float[np.ndarray, "model step out"], want: Float[np.ndarray, "model step out"]
) -> int | None:
    """Return the first step at which two arrays of outputs are not exactly equal, or None."""
    unequal = np.any(~(got == want), axis=(0, 2))
    return int(np.argmax(unequal)) if unequal.any() else None
