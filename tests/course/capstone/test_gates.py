"""The gates: who passes, and who is refused by which sentence."""

import pytest

from mmrl import memory
from mmrl.course.capstone import gates
from tests.course.capstone import wrong


def refusal(factory, gate: str) -> str:
    """The sentence of one gate; others are not asked, which would take longer."""
    if gate in ("contract", "budget"):
        return (
            gates.contract(factory) if gate == "contract" else gates.budget(*gates.sizes(factory))
        )
    pair = gates.both(factory)
    if gate in ("laws", "gradients"):
        return {"laws": gates.laws, "gradients": gates.gradient}[gate](pair)
    behavior = gates.behavior_of(pair, gates.SIZE, max(gates.LAGS))
    checks = {"future": gates.future, "episodes": gates.episodes, "step": gates.step}
    return checks[gate](behavior) if gate in checks else gates.memory_span(behavior)[0]


MISTAKES = {
    "not_associative": ("laws", "associativity fails by"),
    "no_identity": ("laws", "left identity fails by"),
    "bend": ("laws", "with perturbed parameters"),
    "product": ("episodes", "a NaN in the past changes the output 0 steps after"),
    "half_kept": ("episodes", "a past that is larger by 100 changes"),
    "peeking": ("future", "peeks at the future: its output at step 0"),
    "tape": ("contract", "A state that grows with the tape"),
    "without_key": ("contract", "cannot be built"),
    "stepping": ("step", "step by step its outputs differ"),
    "carry": ("step", "a tape in two parts"),
    "forgetful": ("step", "`lookahead` differs from one more step"),
    "double": ("step", "over a tape at first and then step by step"),
    "ahead_now": ("step", "by `lookahead` its outputs differ"),
    "ahead_leaks": ("episodes", "0 steps after a `begin`, by `lookahead`"),
    "steps": ("episodes", "a NaN in the past changes the output 0 steps after a `begin`, step"),
    "window": ("laws", "associativity fails by"),
    "unready": ("contract", "by `lookahead`: NotImplementedError"),
    "narrow": ("contract", "for sizes such as 6 and 32; RuntimeError"),
    "exploding": ("gradients", "is not finite"),
    "growing": ("gradients", "its gradient explodes"),
    "constant": ("memory", "It remembers nothing"),
    "hoarding": ("budget", "Its state has 64000 numbers"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MISTAKES)
def test_a_wrong_memory_is_refused_by_name(name: str):
    gate, message = MISTAKES[name]
    assert message.lower() in refusal(getattr(wrong, name), gate).lower()


@pytest.mark.slow
def test_what_is_right_passes_every_gate():
    judgment = gates.judge(wrong.right)
    assert judgment.passed, judgment.refusals
    assert list(judgment.refusals) == [
        *("contract", "budget", "future", "episodes", "step", "laws", "gradients", "memory")
    ]
    assert (judgment.state, judgment.parameters, judgment.remembers) == (64, 32, 32)


def test_who_breaks_the_contract_is_asked_nothing_more():
    judgment = gates.judge(wrong.tape)
    assert list(judgment.refusals) == ["contract"] and not judgment.passed


@pytest.mark.parametrize("name", ["latch", "most"])
def test_gradients_that_nearly_all_are_zero_do_not_explode(name: str):
    assert refusal(getattr(wrong, name), "gradients") == ""


REFUSALS = {"none": ["memory"], "window": ["budget"], "gtrxl": ["budget"]}


@pytest.mark.full
@pytest.mark.parametrize("name", memory.NAMES)
def test_the_memories_of_the_library_pass(name: str):
    """All of them but the control, which remembers nothing, and windows of more numbers."""
    judgment = gates.judge(memory._constructor(name))
    gates_failed = [gate for gate, lines in judgment.refusals.items() if lines]
    assert gates_failed == REFUSALS.get(name, []), judgment.refusals
    assert (judgment.remembers > 0) == (name != "none")
