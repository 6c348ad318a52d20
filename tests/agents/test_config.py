"""What every agent's `Config` has."""

import numpy as np
import pytest

from mmrl.agents import AGENTS


@pytest.mark.parametrize("agent", AGENTS)
def test_a_run_for_some_steps_has_as_many_blocks_as_reach_them(agent: str):
    config = AGENTS[agent].Config(environments=4, rollout=8, block=16, blocks=3)
    assert config.block_steps == 512
    for steps, blocks in ((1, 1), (512, 1), (513, 2), (1_000_000, 1954)):
        longer = config.for_steps(steps)
        assert longer.blocks == blocks and type(longer.blocks) is int
        assert {**vars(longer), "blocks": 3} == vars(config)
    for steps in (0, -1):
        with pytest.raises(ValueError, match="`steps` must be a whole number of at least 1"):
            config.for_steps(steps)


def test_steps_are_counted_beyond_32_bits():
    config = AGENTS["dqn"].Config()
    for name in ("block", "rollout", "environments"):
        object.__setattr__(config, name, np.int32(2**15))
    assert config.block_steps == 2**45 and type(config.block_steps) is int
