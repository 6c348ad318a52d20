"""Report with all measurements of an agent, as JSON data and as sentences."""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from mmrl.inspect.ablations import ablate, harms
from mmrl.inspect.decoding import decode
from mmrl.inspect.playing import Episodes, play, read_entries
from mmrl.inspect.recalling import leak, recall
from mmrl.inspect.saturation import saturate
from mmrl.inspect.subjects import Subject, all_numbers, own_numbers
from mmrl.runs import interval

STAGES = ("play", "recall", "leak", "decodability", "ablations", "saturation")
TIMES = 8  # length of the saturation test, in multiples of the longest episode
LEAST_EPISODES = 64  # minimum number of episodes per ablation
READABLE = 0.5  # R² above which a part of the state counts as decodable from the memory
OWN, ALL = "the task's own numbers", "all inputs"
CLEAR = 3  # an observation is decisive if it changes over CLEAR times as many actions as the median

Numbers = dict[str, Any]
Parts = Mapping[str, slice]


def stages(
    agent: Subject,
    env: Any,
    params: Any,
    *,
    seed: int = 0,
    episodes: int = 32,
    steps: int = 100,
    parts: Parts | None = None,
) -> Iterator[tuple[str, Numbers]]:
    """Run all measurements, and yield the name and the results of each of the `STAGES`.

    Results are JSON data. Recall and decodability use `episodes` episodes of at most `steps` steps.
    Ablations and saturation are measured on complete episodes, regardless of `steps`. `parts` are
    named slices of the Markov state, by default the complete state. Raises `ValueError` if a slice
    is out of range, or if a measurement raises it.
    """
    keys = jax.random.split(jax.random.key(seed), 4)
    steps = min(steps, int(params.max_steps_in_episode))
    data = play(agent, env, params, keys[0], episodes, max(2, steps))
    named_parts = _parts(data, parts)
    lengths = data.mask.sum(1)
    yield "play", {"episodes": episodes, "steps": steps, "length": float(lengths.mean())}
    flags = own_numbers(env, params), all_numbers(env, params)
    yield "recall", _recall(agent, data, keys[1], *flags)
    crossing = leak(agent, data)
    yield "leak", {"change": _plain(crossing.change), "steps": crossing.steps.tolist()}
    yield "decodability", _decodability(data, named_parts)
    kinds, read = harms(at=max(1, int(lengths.mean()) // 2)), read_entries(agent, data)
    returns = ablate(agent, env, params, keys[2], kinds, max(LEAST_EPISODES, episodes), read)
    yield "ablations", {name: _plain(x) for name, x in returns.items()}
    long = saturate(agent, env, params, keys[3], max(8, episodes // 4), TIMES, read)
    yield "saturation", {name: _plain(x) for name, x in long._asdict().items()}


def _parts(data: Episodes, parts: Parts | None) -> Parts:
    size = data.state.shape[2]
    if parts is None:
        return {"state": slice(0, size)} if size else {}
    for name, part in parts.items():
        if not 0 <= part.start < part.stop <= size:
            raise ValueError(
                f"`parts` must be within the {size} entries of the environment's state; got "
                f"{name}. Write FIRST:END, with END at most {size}."
            )
    return parts


def _recall(agent: Subject, data: Episodes, key: Any, own: Any, every: Any) -> Numbers:
    """Measure recall of the observation, and of all inputs if runs append inputs to it.

    The main result refers to the observation, or to all inputs if the observation is constant.
    """
    results = {OWN: recall(agent, data, key, own=own)}
    if any(np.any(x & ~y) for x, y in zip(*map(jax.tree.leaves, (every, own)), strict=True)):
        results[ALL] = recall(agent, data, key, own=every)
    tested = [x for x in results.values() if x.pairs[1:].any()]
    kind = OWN if results[OWN].pairs.any() else [*results][-1]
    result, whole = results[kind], results.get(ALL)
    return {
        **{name: _plain(x) for name, x in result._asdict().items()},
        "by_observation": _plain(result.by_observation()),
        "reach": result.reach(),
        "ignores_memory": bool(tested) and all(x.ignores_memory for x in tested),
        "replaced": kind,
        "all_inputs": None if whole is None else whole.reach(),
    }


def _decodability(data: Episodes, parts: Parts) -> Numbers:
    time = data.mask.shape[1]
    lags = [0, *(2**i for i in range(12) if 2**i < time)]
    obs = np.concatenate(
        [np.asarray(x).reshape(*x.shape[:2], -1) for x in jax.tree.leaves(data.obs)], axis=2
    )
    targets = {"observation": obs, **{name: data.state[:, :, x] for name, x in parts.items()}}
    sources = {"memory": data.memory, "observation": obs}
    if len(data.mask) < 4:
        return {"lags": lags, "parts": {}}
    return {
        "lags": lags,
        "parts": {
            name: {
                source: _plain(decode(features, target, data.mask, lags))
                for source, features in sources.items()
            }
            for name, target in targets.items()
        },
    }


def _plain(x: Any) -> Any:
    """Convert arrays to JSON data with six digits, and NaN and infinity to None."""
    if isinstance(x, list):
        return [_plain(each) for each in x]
    if isinstance(x, np.ndarray):
        return _plain(x.tolist())
    if isinstance(x, float):
        return float(f"{x:.6g}") if np.isfinite(x) else None
    return x


def sentences(numbers: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each conclusion that the measurements support."""
    memory, reach = numbers["recall"], numbers["recall"]["reach"]
    if not any(memory["pairs"]):
        yield "All observations are equal, so none can be replaced."
    elif not any(memory["pairs"][1:]):
        yield "No earlier observation can be replaced, for example because episodes have one step."
    elif memory["ignores_memory"]:
        yield (
            "The agent ignores its memory: replacing earlier observations does not change any "
            "action, and does not change values by more than 1 % of the largest change. Replaced: "
            f"{memory['replaced']}{_also(memory)}."
        )
    else:
        yield (
            f"Actions depend on {_last(reach['flips'])}. Values depend on "
            f"{_last(reach['change'])} according to interventions, and on "
            f"{_last(reach['gradient'])} according to gradients. Replaced: {memory['replaced']}."
        )
        if (inputs := memory["all_inputs"]) and memory["replaced"] == OWN:
            yield (
                "If the inputs that the run appends, such as previous actions and rewards, are "
                f"also replaced, actions depend on {_last(inputs['flips'])}."
            )
        yield from _decisive(memory)
    if steps := numbers["leak"]["steps"]:
        yield (
            "Leak between episodes: an earlier episode changes values at "
            f"{len(steps)} steps of the next one, first at step {steps[0]}. The memory must forget "
            "everything where `begin` is true."
        )
    yield from _on_decoding(numbers["decodability"])
    yield from _on_ablations(numbers["ablations"])
    yield from _on_saturation(numbers["saturation"])


def _last(count: int) -> str:
    """Describe the last `count` observations in words."""
    words = {0: "no observation", 1: "the current observation only"}
    return words.get(count, f"the last {count} observations")


def _also(numbers: Numbers) -> str:
    return f", and {ALL}" if numbers["all_inputs"] and numbers["replaced"] == OWN else ""


def _decisive(numbers: Numbers) -> Iterator[str]:
    """Yield a sentence if one observation changes far more actions than the others."""
    steps = np.nan_to_num(np.array(numbers["by_observation"], float))
    steps = steps[: max(1, len(steps) // 2)]  # late steps affect too few actions to be reliable
    lags = np.nan_to_num(np.array(numbers["flips"], float))
    for sizes, name, actions in (
        (steps, "The observation at step {}", "all later actions"),
        (lags, "The observation {} steps ago", "the actions at that lag"),
    ):
        best = int(sizes.argmax())
        if sizes[best] > CLEAR * np.median(sizes) and sizes[best] > 0.1:
            if sizes is lags and best < 2:
                name = ("The current observation", "The previous observation")[best]
            yield (
                f"{name.format(best)} matters most: replacing it changes {sizes[best]:.0%} of "
                f"{actions}."
            )
            return


def _on_decoding(numbers: Numbers) -> Iterator[str]:
    """Yield a sentence about the largest lag at which each part is decodable from the memory."""
    for name, sources in numbers["parts"].items():
        scores = np.nan_to_num(np.array([sources["memory"], sources["observation"]], float))
        readable = np.flatnonzero(scores[0] > READABLE)
        if not readable.size:
            continue
        memory, observation = scores[:, readable[-1]]
        lag = numbers["lags"][readable[-1]]
        when = f"{lag} steps ago" if lag > 1 else ("at the same step", "at the previous step")[lag]
        yield (
            f"A linear map decodes the {name} {when} from the memory with R² {memory:z.2f}, and "
            f"from the current observation with R² {observation:z.2f}."
        )


def _on_ablations(numbers: Numbers) -> Iterator[str]:
    whole = np.array(numbers["unharmed"], float)
    for name, returns in numbers.items():
        if name == "unharmed":
            continue
        middle, _, high = interval(np.array(returns, float) - whole)
        if high < 0:
            yield f"The return decreases by {-middle:.3g} under this ablation: {name}."


def _on_saturation(numbers: Numbers) -> Iterator[str]:
    if any(numbers["nonfinite"]):
        yield f"Without resets, up to {max(numbers['nonfinite']):.1%} of the state is not finite."
    first, last = (numbers["norm"][i] for i in (0, -1))
    if first and last and last > 2 * first:
        yield f"Without resets, the norm of the state grows by a factor of {last / first:.3g}."
