"""Compiled programs are given back before a process has no more room for them."""

import jax
import pytest

from mmrl.course.experiments import programs


@pytest.mark.full
def test_programs_are_dropped_where_they_are_many():
    if not programs.MAPPINGS.exists():
        pytest.skip("only Linux tells how many mappings a process holds")
    double = jax.jit(lambda x: 2 * x)
    double(1.0)
    assert not programs.forget_programs(10**6) and double._cache_size() == 1
    assert programs.forget_programs(0) and double._cache_size() == 0
    assert double(3.0) == 6.0


def test_other_systems_are_left_alone(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(programs, "MAPPINGS", tmp_path / "nothing")
    assert not programs.forget_programs(0)
