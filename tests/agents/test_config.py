"""What every agent has: a length in steps, small sizes, a name for its runs, and papers."""

import ast
import importlib.util
import inspect
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from mmrl.agents import AGENTS, find


@pytest.mark.parametrize("agent", AGENTS)
def test_a_run_for_some_steps_has_as_many_blocks_as_reach_them(agent: str):
    config = AGENTS[agent].Config(environments=4, rollout=8, block=16, blocks=3)
    assert config.block_steps == 512
    for steps, blocks in ((1, 1), (512, 1), (513, 2), (1_000_000, 1954)):
        longer = config.for_steps(steps)
        assert longer.blocks == blocks and type(longer.blocks) is int
        assert {**vars(longer), "blocks": 3} == vars(config)
    for steps in (0, -1):
        with pytest.raises(
            ValueError, match="`steps` must be an untraced whole number of at least 1"
        ):
            config.for_steps(steps)


def test_steps_are_counted_beyond_32_bits():
    config = AGENTS["dqn"].Config()
    for name in ("block", "rollout", "environments"):
        object.__setattr__(config, name, np.int32(2**15))
    assert config.block_steps == 2**45 and type(config.block_steps) is int


@pytest.mark.parametrize("agent", AGENTS)
def test_all_else_about_an_agent_is_in_its_module(agent: str):
    module = find(agent)
    small = module.Config(**module.SMALL)
    assert {*module.SMALL} <= {*vars(small)} and small != module.Config()
    words, folder = module.label(module.Config())
    assert words and agent in (*folder.split("-"), "dqn") and "/" not in folder
    assert module.train.__module__ == module.block.__module__
    assert "paper" in module.PAPERS and module.PAPERS["paper"].notes


def test_one_agent_is_imported_without_the_others():
    code = "import sys, mmrl.agents; from mmrl.agents import dqn; print(*sys.modules)"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
    modules = {AGENTS[name].__name__ for name in AGENTS}
    assert modules & {*process.decode().split()} == {"mmrl.agents.dqn"}
    assert "dqn" in AGENTS and "mmrl" not in AGENTS and len(AGENTS) == len(modules)


MOST_IMPORTS = 12


def module_of(package: str, name: str) -> str:
    """Return the module that `from package import name` imports."""
    inside = f"{package}.{name}"
    door = importlib.util.find_spec(package)
    is_package = door is not None and door.submodule_search_locations
    return inside if is_package and importlib.util.find_spec(inside) else package


@pytest.mark.parametrize("agent", AGENTS)
def test_the_page_of_an_agent_imports_few_modules_of_ours(agent: str):
    page = pathlib.Path(inspect.getsourcefile(AGENTS[agent].Config) or "")
    modules = {
        module_of(node.module, alias.name)
        for node in ast.walk(ast.parse(page.read_text("utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("mmrl")
        for alias in node.names
    }
    assert 3 < len(modules) <= MOST_IMPORTS, sorted(modules)
