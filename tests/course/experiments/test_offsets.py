"""The experiment on numbers of any size: its grid."""

from mmrl.agents import AGENTS
from mmrl.agents.checks import normalized_features
from mmrl.course.experiments import experiment_offsets as offsets
from mmrl.envs.echo import Echo


def test_every_agent_observes_all_numbers_and_normalizes_them():
    assert [(cell.offset, cell.scale) for cell in offsets.cells()] == [*offsets.NUMBERS] * len(
        AGENTS
    )
    assert {cell.agent for cell in offsets.cells()} == {*AGENTS}
    env = Echo()
    for cell in offsets.cells():
        config = cell.config()
        assert config.memory == "lru" and config.normalize_observations is None
        assert config.block_steps * config.blocks - offsets.STEPS[cell.agent] >= 0
        assert normalized_features(config, env, env.default_params) == (True,)
