"""What a run is: an agent and its settings, an environment, and what the network is shown of it."""

import dataclasses
import difflib
import json
from typing import Any, Protocol, runtime_checkable

from mmrl.agents import clear, dqn, ppo, r2d2
from mmrl.agents.ppo import ppg
from mmrl.runs.checkpoint import EARLIER, RunError, unquote


@runtime_checkable
class Agent(Protocol):
    """What a run asks of a module in `mmrl.agents`."""

    @property
    def Config(self) -> Any:
        """Its settings. They have `memory`, `learning_rate`, and what counts a run's steps:
        `environments`, `rollout`, `block`, `blocks` and `episodes`. A schedule that follows the
        length of a run goes by `horizon`, in blocks: in a run's program `blocks` is 1."""
        ...

    @property
    def OBSERVES(self) -> tuple[str, ...]:
        """The names in `SHOWN` of what its network is shown unless a setup says otherwise."""
        ...

    def check(self, config: Any, env: Any, params: Any) -> None:
        """Raises `ValueError` for a setting that cannot work."""
        ...

    def init(self, config: Any, env: Any, params: Any, key: Any) -> Any:
        """The state of a run that begins; its `net` is what `greedy` plays."""
        ...

    def block(self, config: Any, env: Any, params: Any, state: Any) -> tuple[Any, Any]:
        """The state after a block, and its `mmrl.agents.common.Metrics`."""
        ...

    def greedy(self, net: Any) -> Any:
        """The `mmrl.rollout.Policy` that is evaluated."""
        ...


AGENTS: dict[str, Agent] = {"dqn": dqn, "r2d2": r2d2, "ppo": ppo, "ppg": ppg, "clear": clear}
# What a network may be shown beside o_t, in this order.
SHOWN = ("previous_action", "previous_reward", "begin_flag")


@dataclasses.dataclass(frozen=True)
class Setup:
    """All that determines a run's numbers, beside versions and device.

    What is left out is the agent's own: its `Config()`, and to be shown what its `OBSERVES` names.
    Raises `ValueError` for an unknown agent, and for the settings of another one.
    """

    env: str  # an id for `mmrl.envs.make`
    config: Any = None  # a `Config` of the agent
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)
    agent: str = "dqn"  # a name in `AGENTS`
    previous_action: bool | None = None  # show a_{t-1} to the network
    begin_flag: bool | None = None  # show b_t to the network
    previous_reward: bool | None = None  # show r_{t-1} to the network

    def __post_init__(self):
        agent = find(self.agent)
        own = {name: name in agent.OBSERVES for name in SHOWN} | {"config": agent.Config()}
        for name, value in own.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if not isinstance(self.config, agent.Config):
            of = [name for name, other in AGENTS.items() if isinstance(self.config, other.Config)]
            raise ValueError(
                f"`config` must be a `Config` of {self.agent}; got one of "
                f"{of[0] if of else type(self.config).__name__}. Give the `agent` that it is of."
            )


def find(agent: str) -> Agent:
    """The agent of this name. Raises `ValueError` for an unknown one, with the nearest."""
    if agent not in AGENTS:
        near = difflib.get_close_matches(agent.lower(), AGENTS, 1)
        advice = f" Try {near[0]!r}." if near else ""
        raise ValueError(f"`agent` must be one of {list(AGENTS)}; got {agent!r}.{advice}")
    return AGENTS[agent]


def describe(setup: Setup) -> dict[str, Any]:
    """A setup as JSON data; `restore` is its inverse."""
    return json.loads(json.dumps(dataclasses.asdict(setup)))


def restore(data: dict[str, Any]) -> Setup:
    """The setup that `describe` described. Raises `RunError` for that of another version."""
    try:
        data = {**EARLIER, **unquote(data)}
        config = AGENTS[data["agent"]].Config(**{k: _tuples(v) for k, v in data["config"].items()})
        return Setup(**{**data, "config": config, "seeds": tuple(data["seeds"])})
    except (KeyError, TypeError, AttributeError) as error:
        raise RunError(f"This run is of another version of mmrl: {error}.") from None


def _tuples(data: Any) -> Any:
    """JSON knows no tuples."""
    return tuple(map(_tuples, data)) if isinstance(data, list) else data
