"""Right answers that differ in algorithm, precision and type pass every check.

Each module of `solutions` holds three answers per exercise, in plain Python, NumPy and JAX.
"""

import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl.course.exercises import Exercise, NotYet
from tests.course.exercises import solutions
from tests.course.exercises.test_exercises import ALL, each_exercise, right

SOLUTIONS = {
    name: answers
    for module in pkgutil.iter_modules(solutions.__path__, f"{solutions.__name__}.")
    for name, answers in importlib.import_module(module.name).SOLUTIONS.items()
}


# Solutions of these compile programs for seconds.
SLOW = {f"chapter_{name}" for name in ("00b-moving_average", "07-gradient", "11-weight")}
SLOW |= {f"chapter_{name}" for name in ("15-advantages", "17-average")}


def _with_tier(case: Any) -> Any:
    """Return the case of an exercise, marked `full` if its solutions compile."""
    return case._replace(marks=(pytest.mark.full,)) if case.id in SLOW else case


@pytest.mark.slow
@pytest.mark.parametrize("exercise", [_with_tier(case) for case in ALL])
def test_right_answers_are_accepted_whatever_their_algorithm(exercise: Exercise):
    answers = SOLUTIONS[exercise.name]
    assert len(answers) >= 3
    for answer in answers:
        exercise.grade(answer)


def test_every_solution_belongs_to_an_exercise():
    assert sorted(SOLUTIONS) == sorted(parameter.values[0].name for parameter in ALL)


def single(x: Any) -> Any:
    """The same number in 32 bits."""
    if isinstance(x, np.ndarray) and x.dtype.kind in "fc":
        return x.astype(np.complex64 if x.dtype.kind == "c" else np.float32)
    return x


AS = (
    lambda x: np.asarray(x).tolist(),
    np.float32,
    jnp.asarray,
    lambda x: np.asarray(x).astype(object),
)


@each_exercise
@pytest.mark.parametrize("change", AS, ids=("lists", "float32", "JAX", "objects"))
def test_results_of_other_types_are_accepted(exercise: Exercise, change: Callable[[Any], Any]):
    exercise.grade(right(exercise, lambda leaf: leaf if isinstance(leaf, str) else change(leaf)))


@each_exercise
def test_single_precision_is_enough(exercise: Exercise):
    if exercise.cases is not None:
        exercise.grade(lambda *case: exercise.solution(*jax.tree.map(single, case)))


def lenient(clean: Any, poison: Any, start: int) -> bool:
    return not np.allclose(clean[start:], poison[start:], rtol=0, atol=3e-7)


def with_rounding(shortest: float, longest: float, units: int) -> Any:
    eigenvalues = np.exp(-0.6931 / np.geomspace(shortest, longest, units))  # ln 2 = 0.69315
    return eigenvalues, np.sqrt(1 - eigenvalues**2)


@pytest.mark.parametrize(("name", "answer"), [("19.2", lenient), ("3b.2", with_rounding)])
def test_small_errors_are_refused(name: str, answer: Callable[..., Any]):
    """Tolerances are for the rounding of 32 bits: in 3b.2, for 4e-6."""
    exercises: list[Any] = [parameter.values[0] for parameter in ALL]
    (exercise,) = (x for x in exercises if x.name == name)
    with pytest.raises(NotYet):
        exercise.grade(answer)
