"""Deprecated names: each one is the new name, with a warning at the line that uses it."""

import importlib
import subprocess
import sys

import pytest

NAMES = {
    "mmrl.agents": {"resized": "resize"},
    "mmrl.agents.dqn": {"changed": "learner_state", "sized": "resolve_sizes"},
    "mmrl.agents.ppo.ppg": {"Kept": "AuxiliaryBatch"},
    "mmrl.envs": {"registered": "registered_ids"},
    "mmrl.inspect": {"exported": "policy_subject"},
    "mmrl.losses": {"taken": "select_values"},
    "mmrl.nets": {"Masked": "MaskedNet"},
    "mmrl.returns": {"discounted": "discounted_return"},
    "mmrl.rollout": {"Recorded": "AnyArray"},
    "mmrl.runs": {
        "SHOWN": "OPTIONAL_INPUTS",
        "Scored": "Score",
        "logged": "log_reports",
        "saved": "saved_setup",
    },
    "mmrl.runs.zoo": {"named": "is_name"},
}
PAIRS = [(module, old, new) for module, names in NAMES.items() for old, new in names.items()]


@pytest.mark.parametrize(("module", "old", "new"), PAIRS)
def test_a_deprecated_name_is_the_new_one(module: str, old: str, new: str):
    home = importlib.import_module(module)
    with pytest.warns(DeprecationWarning, match=rf"`{module}\.{old}` .* Use `{module}\.{new}`"):
        value = getattr(home, old)
    assert value is getattr(home, new)
    assert old not in vars(home)  # so that the next use warns, too


@pytest.mark.parametrize("module", NAMES)
def test_an_unknown_name_is_an_attribute_error(module: str):
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'unknown'"):
        _ = importlib.import_module(module).unknown


def test_the_warning_points_at_the_line_that_uses_the_name():
    # In a fresh interpreter, because this one checks types, which adds calls.
    code = "from mmrl.losses import taken\nfrom mmrl import nets\nnets.Masked\n"
    command = [sys.executable, "-W", "always::DeprecationWarning", "-c", code]
    process = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "<string>:1: DeprecationWarning: `mmrl.losses.taken` is deprecated" in process.stderr
    assert "<string>:3: DeprecationWarning: `mmrl.nets.Masked` is deprecated" in process.stderr
