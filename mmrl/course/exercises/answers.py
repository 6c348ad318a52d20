"""Exercises that compare an answer with the correct one and with common mistakes.

A correct answer is confirmed. A missing answer, `...`, is not an error, so that an unfinished
notebook still runs to the end. A wrong answer raises `NotYet` with a one-line hint.
"""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

Arguments = tuple[Any, ...]
LONGEST = 120  # maximum number of characters that a hint shows of a case or an error


class NotYet(Exception):
    """Exception for a wrong answer; its message is a hint."""

    def _render_traceback_(self) -> list[str]:
        """Return the lines that IPython displays, which are the hint without a traceback."""
        return [f"✗ {self}"]


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A common wrong answer and the hint that corrects it."""

    answer: Any  # a function or a value, as in `Exercise.solution`
    hint: str


@dataclasses.dataclass(frozen=True)
class Exercise:
    """An exercise, which is called with an answer to check it.

    `solution` is a correct answer. If it is a function, `cases` samples its arguments and returns
    one tuple per case. If it is a scalar, an array or a pytree of these, leave `cases` out.

    An answer is correct if it equals `solution` in every case. Floats may differ by up to
    `tolerance` × (1 + |solution|); booleans, integers and strings must be equal. `stops` pairs
    a part of an error message with the hint to print after that error.
    """

    name: str  # chapter and number, "2.1"
    solution: Any
    cases: Callable[[np.random.Generator], list[Arguments]] | None = None
    mistakes: tuple[Mistake, ...] = ()
    stops: tuple[tuple[str, str], ...] = ()
    tolerance: float = 1e-4

    def __call__(self, answer: Any) -> None:
        """Confirm a correct answer and report a missing one.

        Raises `NotYet` with a hint for a wrong answer.
        """
        cases = self._cases()
        if _open(_result(answer, cases[0])):
            print(f"Exercise {self.name} is not answered yet: replace the dots above.")
            return
        self._judge(answer, cases)
        print(f"✓ Exercise {self.name}: right, on {self._extent(len(cases))}.")

    def grade(self, answer: Any) -> None:
        """Raise `NotYet` with a hint if `answer` is wrong or missing."""
        cases = self._cases()
        if _open(_result(answer, cases[0])):
            raise NotYet(f"Exercise {self.name}: it was left open.")
        self._judge(answer, cases)

    def _judge(self, answer: Any, cases: list[Arguments]) -> None:
        trouble = next(filter(None, (self._compare(answer, case) for case in cases)), None)
        if trouble is not None:
            raise NotYet(f"Exercise {self.name}: {self._hint(answer, cases) or trouble}")

    def _cases(self) -> list[Arguments]:
        return [()] if self.cases is None else self.cases(np.random.default_rng(0))

    def _extent(self, cases: int) -> str:
        return "the requested value" if self.cases is None else f"all {cases} cases"

    def _hint(self, answer: Any, cases: list[Arguments]) -> str | None:
        """Return the hint of the first known mistake whose results equal the answer's."""
        results = [_result(answer, case) for case in cases]
        if failures := [pair for pair in zip(results, cases, strict=True) if _is_failure(pair[0])]:
            return self._after(*failures[0])
        for mistake in self.mistakes:
            theirs = (_result(mistake.answer, case) for case in cases)
            pairs = zip(results, theirs, strict=True)
            if all(self._same(*pair) for pair in pairs):
                return mistake.hint
        return None

    def _after(self, failure: "Failure", case: Arguments) -> str | None:
        """Return the error message and its hint, or None if the error is not in `stops`."""
        hint = next((hint for words, hint in self.stops if words in failure.words), None)
        return hint and f"{failure.words}{_format_arguments(case)}. {hint}"

    def _same(self, result: Any, other: Any) -> bool:
        return not _is_failure(other) and _difference(result, other, self.tolerance) is None

    def _compare(self, answer: Any, case: Arguments) -> str | None:
        """Describe how the answer is wrong in one case, or return None if it is correct."""
        result = _result(answer, case)
        if _open(result):
            return f"a part of it is still `...`{_format_arguments(case)}."
        expected = self.solution(*case) if callable(self.solution) else self.solution
        if _is_failure(result):
            return f"{result.words}{_format_arguments(case)}."
        difference = _difference(result, expected, self.tolerance)
        return None if difference is None else f"{difference}{_format_arguments(case)}."


@dataclasses.dataclass(frozen=True)
class Failure:
    """The message of an exception that an answer raised."""

    words: str


def _is_failure(result: Any) -> bool:
    return isinstance(result, Failure)


def _result(answer: Any, case: Arguments) -> Any:
    if not callable(answer):
        return answer
    # Copy the arguments, because an answer may change its arguments in place.
    case = jax.tree.map(lambda x: x.copy() if isinstance(x, np.ndarray) else x, case)
    try:
        return _as_lists(answer(*case))
    except Exception as error:
        words = " ".join(str(error).split())
        words = words if len(words) <= LONGEST else f"{words[:LONGEST]} …"
        return Failure(f"it stopped with {type(error).__name__}: {words}".rstrip(".: "))


def _as_lists(result: Any) -> Any:
    """Convert iterators in `result` to lists, because an iterator can be read only once."""
    result = list(result) if isinstance(result, Iterator) else result
    return [*map(_as_lists, result)] if isinstance(result, list | tuple) else result


def _open(result: Any) -> bool:
    """Return True if the result contains a `...`, or if the answer failed because of one."""
    if _is_failure(result):
        return "ellipsis" in result.words.lower()
    return any(leaf is ... for leaf in jax.tree.leaves(result))


def _difference(result: Any, expected: Any, tolerance: float) -> str | None:
    """Describe how a result differs from the solution's, or return None if they agree."""
    if not isinstance(expected, list | tuple):
        return _leaf(result, expected, tolerance)
    if result is None:
        return "it gives None: does the function return what it found?"
    parts = _parts(result)
    if len(parts) != len(expected):
        return f"it gives {_several(len(parts))}; expected {_several(len(expected))}"
    pairs = zip(parts, expected, strict=True)
    return next(filter(None, (_difference(*pair, tolerance) for pair in pairs)), None)


def _parts(result: Any) -> list[Any]:
    """Split a result into its entries."""
    return list(result) if isinstance(result, list | tuple) or np.ndim(result) else [result]


def _several(count: int) -> str:
    return "one value or array" if count == 1 else f"{count} values or arrays"


def _leaf(result: Any, expected: Any, tolerance: float) -> str | None:
    if result is None:
        return "it gives None, as a function without a `return` does"
    try:
        result, expected = _array(result), np.asarray(expected)
    except Exception:  # for example rows of unequal length, a tracer or a key
        return f"it gives {type(result).__name__}, which is not a number or an array"
    exact, numeric = expected.dtype.kind in "biuU", result.dtype.kind in "biufc"
    if not numeric and expected.dtype.kind != result.dtype.kind:
        kind = type(result.item() if result.ndim == 0 else result).__name__
        return f"it gives {kind}, not a number"
    if result.shape != expected.shape:
        return f"its shape is {list(result.shape)}; expected {list(expected.shape)}"
    if expected.dtype.kind == "U":
        return (
            None
            if np.array_equal(result, expected)
            else f"it gives '{result}', which is not the answer"
        )
    if expected.dtype.kind != "c" and result.dtype.kind == "c":
        return "it gives complex numbers instead of real ones"
    if np.isnan(result).any() and not np.isnan(expected).any():
        return "it gives NaN, not a number: look for 0/0, ∞ - ∞, or a root of a negative"
    slack = 0 if exact else tolerance * (1 + np.abs(np.where(np.isfinite(expected), expected, 0)))
    with np.errstate(invalid="ignore"):
        wrong = ~((result == expected) | (np.abs(result - np.asarray(expected, complex)) <= slack))
    wrong &= ~(np.isnan(result) & np.isnan(expected)) if not exact else True
    if not wrong.any():
        return None
    where = tuple(int(i) for i in np.argwhere(wrong)[0])
    place = f" at index {list(where)}" if where else ""
    return f"it gives {_short(result[where])}{place}; expected {_short(expected[where])}"


def _array(x: Any) -> np.ndarray:
    """Convert `x` to an array. Objects such as fractions become floats."""
    array = np.asarray(x)
    return array if array.dtype.kind in "biufcU" else array.astype(float)


def _short(value: np.generic) -> str:
    return f"{value:.5g}" if value.dtype.kind in "fc" else str(value)


def _format_arguments(case: Arguments) -> str:
    """Format the arguments of a case on one line, truncated to `LONGEST` characters."""
    if not case:
        return ""
    with np.printoptions(precision=3, threshold=8, edgeitems=3, suppress=True):
        words = ", ".join(_words(x) for x in case)
    words = " ".join(words.split())
    return f" (for {words})" if len(words) <= LONGEST else f" (for {words[:LONGEST]} …)"


def _words(x: Any) -> str:
    try:
        return str(np.asarray(x)) if hasattr(x, "shape") else str(x)
    except Exception:  # for example a key of `jax.random`
        return str(x)


@dataclasses.dataclass(frozen=True)
class CountExercise(Exercise):
    """An exercise whose answer is a tuple of counts.

    `words` are the names of the counts. A hint states the name of the first wrong count and by how
    much it differs from the correct one.
    """

    words: tuple[str, ...] = ()

    def _compare(self, answer: Any, case: tuple[Any, ...]) -> str | None:
        trouble, counts = super()._compare(answer, case), _counts(answer, case)
        if trouble is None or counts is None or len(counts) != len(self.words):
            return trouble
        beyond = (abs(a - b) for a, b in zip(counts, self.solution(*case), strict=True))
        which, count = next((words, n) for words, n in zip(self.words, beyond, strict=True) if n)
        return f"{which}: {count} (for {', '.join(map(str, case))})."


def _counts(answer: Any, case: tuple[Any, ...]) -> tuple[int, ...] | None:
    try:
        counts = answer(*case)
    except Exception:  # `Exercise._compare` reports the error
        return None
    whole = isinstance(counts, tuple) and all(isinstance(count, int) for count in counts)
    return counts if whole else None
