"""Exercises: the mechanism, and every exercise of every chapter.

A chapter's reference answer passes, each known mistake gets its own hint, and whatever else a
reader may hand in, `...`, None, NaN, an exception, ends in one calm line.
"""

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import course
from mmrl.course.exercises import Exercise, Mistake, NotYet
from mmrl.course.exercises.answers import LONGEST

FOLDERS = {
    f"chapter_{path.parent.name[2:].partition('_')[0]}": path.parent.name
    for path in sorted(Path(course.__path__[0]).glob("ch*/exercises.py"))
}
NAMES = [*FOLDERS]


def exercises(module: str) -> dict[str, Exercise]:
    result = vars(importlib.import_module(f"mmrl.course.{FOLDERS[module]}.exercises"))
    return {name: value for name, value in result.items() if isinstance(value, Exercise)}


ALL = [
    pytest.param(exercise, id=f"{module}-{name}")
    for module in NAMES
    for name, exercise in exercises(module).items()
]
each_exercise = pytest.mark.parametrize("exercise", ALL)


def hint(exercise: Exercise, answer: Any) -> str:
    """What a reader is told about an answer that is not right: always one calm line."""
    with pytest.raises(NotYet) as error:
        exercise(answer)
    (line,) = error.value._render_traceback_()
    assert line.startswith(f"✗ Exercise {exercise.name}: ") and line.endswith((".", "?")), line
    assert "\n" not in line and len(line) < 600 and "Traceback" not in line, line
    return line


def cases(exercise: Exercise) -> list[tuple[Any, ...]]:
    return [()] if exercise.cases is None else exercise.cases(np.random.default_rng(0))


def right(exercise: Exercise, change: Callable[[Any], Any] = lambda leaf: leaf) -> Any:
    """The reference answer, each number or array of it changed."""
    if not callable(exercise.solution):
        return jax.tree.map(change, exercise.solution)
    return lambda *case: jax.tree.map(change, exercise.solution(*case))


# Every exercise


@pytest.mark.parametrize("module", NAMES)
def test_a_chapter_has_three_exercises(module: str):
    chapter = re.sub("^0(?=.)", "", module.removeprefix("chapter_"))  # 0, 0b, 17
    results = sorted(exercise.name for exercise in exercises(module).values())
    assert results == [f"{chapter}.{k}" for k in (1, 2, 3)]


@each_exercise
def test_the_right_answer_is_told_so(exercise: Exercise, capsys: pytest.CaptureFixture[str]):
    exercise(exercise.solution)
    exercise(right(exercise, np.asarray))
    assert capsys.readouterr().out.count(f"✓ Exercise {exercise.name}: right") == 2


@each_exercise
def test_every_mistake_gets_its_own_hint(exercise: Exercise):
    hints = [mistake.hint for mistake in exercise.mistakes]
    assert len(hints) == len(set(hints)) >= 2, "at least two mistakes, each with its own hint"
    for mistake in exercise.mistakes:
        assert hint(exercise, mistake.answer) == f"✗ Exercise {exercise.name}: {mistake.hint}"
        assert 20 <= len(mistake.hint) <= 400, "a hint is one or two sentences"


@each_exercise
def test_an_open_answer_is_no_error_and_earns_nothing(
    exercise: Exercise, capsys: pytest.CaptureFixture[str]
):
    answers = [...] if exercise.cases is None else [..., lambda *case: ...]
    for answer in answers:
        exercise(answer)
        assert "not answered yet" in capsys.readouterr().out
        with pytest.raises(NotYet, match=f"Exercise {exercise.name}: it was left open"):
            exercise.grade(answer)


@each_exercise
def test_nonsense_is_met_calmly(exercise: Exercise):
    def stumble(*case: Any) -> Any:
        raise ZeroDivisionError("division by zero")

    assert "None" in hint(exercise, None if exercise.cases is None else lambda *case: None)
    assert "ZeroDivisionError: division by zero" in hint(exercise, stumble)
    hint(exercise, right(exercise, lambda leaf: np.asarray(leaf)[None]))
    hint(exercise, right(exercise, lambda leaf: np.full(np.shape(leaf), np.nan)))
    hint(exercise, "an idea" if exercise.cases is None else lambda *case: "an idea")
    hint(exercise, [[1], [2, 3]] if exercise.cases is None else lambda *case: [[1], [2, 3]])


@each_exercise
def test_right_by_accident_is_not_right(exercise: Exercise):
    examples = cases(exercise)
    if exercise.cases is None:
        return
    assert len(examples) >= 3, "at least three cases"
    # What is right in one case, given in all of them.
    for case in examples:
        constant = exercise.solution(*case)
        hint(exercise, lambda *_, constant=constant: constant)


@each_exercise
def test_cases_are_the_same_every_time(exercise: Exercise):
    assert str(cases(exercise)) == str(cases(exercise))


# The mechanism


maxima = Exercise(
    "9.1",
    solution=np.maximum.accumulate,
    cases=lambda rng: [(rng.normal(size=n).astype(np.float32),) for n in (1, 2, 7)],
    mistakes=(
        Mistake(np.add.accumulate, "That is the running sum."),
        Mistake(lambda xs: np.full(3, xs[2]), "This mistake fails on short tapes."),
    ),
)
value = Exercise("9.2", solution=3, mistakes=(Mistake(4, "One too many."),))
pair = Exercise(
    "9.3", solution=lambda n: (n, np.zeros(n)), cases=lambda rng: [(n,) for n in (1, 2)]
)


@pytest.mark.parametrize(
    ("exercise", "answer"),
    [
        (maxima, lambda xs: jnp.maximum.accumulate(xs)),
        (maxima, lambda xs: [max(xs[: i + 1]) for i in range(len(xs))]),
        (maxima, lambda xs: np.maximum.accumulate(xs) * (1 + 1e-6)),
        (value, 3.0),
        (value, np.int64(3)),
        (pair, lambda n: [n, jnp.zeros(n)]),
    ],
)
def test_right_answers_of_many_kinds(exercise: Exercise, answer: Any, capsys: Any):
    exercise(answer)
    assert "✓" in capsys.readouterr().out
    exercise.grade(answer)


def in_place(xs: np.ndarray) -> np.ndarray:
    xs[:] = np.add.accumulate(xs)
    return xs


@pytest.mark.parametrize(
    ("exercise", "answer", "message"),
    [
        (maxima, np.add.accumulate, "the running sum"),
        (maxima, in_place, "the running sum"),
        (maxima, np.minimum.accumulate, r"it gives .* at index .*; expected -?\d"),
        (maxima, lambda xs: xs[:-1], r"shape is \[0\]; expected \[1\]"),
        (maxima, lambda xs: xs / 0 * 0, "NaN"),
        (maxima, lambda xs: 1j * xs, "complex"),
        (maxima, lambda xs: None, "None"),
        (maxima, lambda xs: "text", "str"),
        (maxima, lambda xs: xs[9], "IndexError"),
        (maxima, lambda: 1, "TypeError"),
        (maxima, lambda xs: (xs, xs), "shape"),
        (maxima, lambda xs: [[1], [2, 3]], "not a number"),
        (maxima, lambda xs: jax.random.key(0), "not a number"),
        (maxima, 3.0, "shape"),
        (value, 4, "One too many"),
        (value, 3 + 1e-5, "expected 3"),
        (value, np.nan, "NaN"),
        (value, lambda x: 3, "TypeError"),
        (pair, lambda n: n, "one value or array; expected 2 values"),
        (pair, lambda n: (n + (n > 1), np.zeros(n)), r"expected 2 \(for 2\)"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value|divide by zero:RuntimeWarning")
def test_wrong_answers_of_many_kinds(exercise: Exercise, answer: Any, message: str):
    assert re.search(message, hint(exercise, answer))
    with pytest.raises(NotYet, match=message):
        exercise.grade(answer)


@pytest.mark.parametrize(
    "answer",
    [
        ...,
        lambda xs: ...,
        lambda xs: xs + ...,
        lambda xs: jnp.add(xs, ...),
        lambda xs: (xs, ...),
        lambda xs: jnp.asarray(...),
    ],
)
def test_dots_anywhere_are_an_open_answer(answer: Any, capsys: pytest.CaptureFixture[str]):
    maxima(answer)
    assert "not answered yet" in capsys.readouterr().out


def test_dots_in_some_case_are_named():
    assert "still `...`" in hint(maxima, lambda xs: xs if len(xs) < 2 else ...)


def test_an_answer_that_works_in_place_spoils_no_case(capsys: pytest.CaptureFixture[str]):
    def maximum(xs: np.ndarray) -> np.ndarray:
        for i in range(1, len(xs)):
            xs[i] = max(xs[i - 1], xs[i])
        return xs

    maxima(maximum)
    assert "all 3 cases" in capsys.readouterr().out


def test_a_long_error_is_cut():
    def stumble(xs: Any) -> Any:
        raise ValueError("long\n" * 1000)

    assert len(hint(maxima, stumble)) < 3 * LONGEST


def test_a_key_in_a_case_can_be_shown():
    exercise = Exercise("9.4", solution=lambda key: 1, cases=lambda rng: [(jax.random.key(0),)] * 3)
    assert "expected 1" in hint(exercise, lambda key: 2)


def test_a_notebook_shows_the_hint_alone():
    error = NotYet("Exercise 9.1: look again.")
    assert error._render_traceback_() == ["✗ Exercise 9.1: look again."]


# Errors that readers meet


def running(xs, begin, beta):  # an `if` on a tracer
    def step(h, inputs):
        h = inputs[0] if inputs[1] else beta * h + (1 - beta) * inputs[0]
        return h, h

    return jax.lax.scan(step, 0.0, (xs, begin))[1]


def all_keys(key, steps):
    keys = jax.random.split(key, steps)
    return jax.lax.scan(lambda h, _: 2 * (h + jax.random.normal(keys),), 0.0, keys)[1]


def discount(rewards, gamma):
    return jax.lax.scan(lambda y, r: 2 * (r + gamma * y,), 0.0, rewards, reverse=True)[1]


@pytest.mark.parametrize(
    ("chapter", "name", "answer", "message"),
    [
        ("00b", "moving_average", running, "`jnp.where"),
        ("00b", "walk", all_keys, "as `xs`"),
        ("00b", "all_returns", jax.vmap(jax.vmap(discount)), "`in_axes` to None"),
        ("00b", "all_returns", jax.vmap(discount, (0, None)), "a second `vmap`"),
        ("01", "belief_step", lambda b, T, Z, o: b @ T * Z[o] / sum(b @ T * Z[o]), "the column"),
        (
            "02",
            "merge_means",
            lambda a, b: (a[0] + b[0], (a[0] * a[1] + b[0] * b[1]) / (a[0] + b[0])),
            "Divide by 1 if",
        ),
        ("04", "learned_start", lambda g, x, begin, h0: x.at[0].add(h0), r"`np\.where"),
    ],
)
def test_a_known_error_gets_a_hint(chapter: str, name: str, answer: Any, message: str):
    exercise = exercises(f"chapter_{chapter}")[name]
    assert re.search(rf"it stopped with \w+: .* {message}", hint(exercise, answer))


def test_the_stops_of_all_exercises_are_calm():
    for parameter in ALL:
        for _words, report in parameter.values[0].stops:
            assert 20 <= len(report) <= 300 and report.endswith(".")
