"""Cart-pole in which the agent observes only the positions or only the velocities."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from mmrl._dtypes import with_promotion
from mmrl.envs._gymnax import cartpole, environment, spaces
from mmrl.envs.popgym.base import (
    Action,
    Entry,
    Leaf,
    Numbers,
    Task,
    check_noise,
    check_positive,
    levels,
    normal,
)

Params = cartpole.EnvParams
PHYSICS = cartpole.CartPole()


@struct.dataclass
class State(environment.EnvState):
    """State of gymnax's cart-pole, and the observation noise."""

    time: Leaf  # int32: number of steps taken
    x: Leaf  # float32: position of the cart [m]
    x_dot: Leaf  # float32: velocity of the cart [m/s]
    theta: Leaf  # float32: angle of the pole from upright [rad]
    theta_dot: Leaf  # float32: angular velocity [rad/s]
    noise: Leaf  # float32 [2]: noise of x and theta, in units of sigma


class PositionOnlyCartPole(Task):
    """Cart-pole with hidden velocities.

    The dynamics are the same as in gymnax's CartPole. The observation is (x, θ) + σ z with
    z ~ N(0, 1), where x is in meters and θ in radians, clipped to ±4.8 m and ±24°. An episode
    terminates when |x| > 2.4 m or |θ| > 12°, and is truncated after T = num_steps steps; both can
    happen at the same step. Every step, including the last one, has reward 1/T, so the return is in
    (0, 1]. Set `sigma` > 0 for popgym's NoisyPositionOnlyCartPole.
    """

    def __init__(self, num_steps: int = 200, sigma: float = 0.0):
        check_positive("num_steps", num_steps, "the Easy level uses 200")
        check_noise(sigma, "in meters and radians")
        self.num_steps, self.sigma, self.actions = num_steps, float(sigma), 2
        self.obs_size, self.state_size = 2, 4
        noises = 2 if sigma > 0 else 0
        self.start_numbers, self.step_numbers = 4 + noises, noises

    @property
    def default_params(self) -> Params:
        """Default parameters of gymnax's CartPole, with a time limit of `num_steps`."""
        return Params(max_steps_in_episode=self.num_steps)

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        x, x_dot, theta, theta_dot = 0.1 * u[:4] - 0.05
        return State(jnp.int32(0), x, x_dot, theta, theta_dot, self._noise(u[4:]))

    def advance(
        self, u: Numbers, state: State, action: Action, params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        # The dynamics are deterministic, so no key is needed.
        pole = PHYSICS.step_env(None, state, action, params)[1]  # pyright: ignore
        return State(**vars(pole), noise=self._noise(u)), jnp.float32(1 / self.num_steps)

    @with_promotion
    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return x [m] and θ [rad] with noise, clipped to the observation space."""
        high = self._limits(params)
        return jnp.clip(jnp.stack([state.x, state.theta]) + self.sigma * state.noise, -high, high)

    @with_promotion
    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return True if |x| > 2.4 m or |θ| > 12°."""
        return PHYSICS.is_terminated(state, params)  # pyright: ignore

    def observation_space(self, params: Params | None = None) -> spaces.Box:
        """Return the observation space."""
        high = self._limits(self.default_params if params is None else params)
        return spaces.Box(-high, high, (self.obs_size,), jnp.float32)

    def state_space(self, params: Params | None = None) -> spaces.Box:
        """Return the space of `state_obs`."""
        return spaces.Box(-jnp.inf, jnp.inf, (self.state_size,), jnp.float32)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return (x, ẋ, θ, θ̇) without noise."""
        return jnp.stack([state.x, state.x_dot, state.theta, state.theta_dot])

    def _limits(self, params: Params) -> Float[Array, " obs"]:
        return jnp.array([2 * params.x_threshold, 2 * params.theta_threshold_radians], jnp.float32)

    def _noise(self, u: Numbers) -> Float[Array, " obs"]:
        return normal(u) if self.sigma > 0 else jnp.zeros(self.obs_size)


class VelocityOnlyCartPole(PositionOnlyCartPole):
    """Cart-pole with hidden positions. The observation is (ẋ, θ̇), in m/s and rad/s.

    By default, the first observation of an episode is (x, θ), which reproduces a bug of popgym
    1.0.7. Set `first="velocities"` to observe (ẋ, θ̇) at every step. A linear policy without memory
    can balance the pole.
    """

    def __init__(self, num_steps: int = 200, first: str = "positions"):
        super().__init__(num_steps)
        if first not in ("positions", "velocities"):
            raise ValueError(f'`first` must be "positions" or "velocities", got {first!r}.')
        self.first = first

    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return (ẋ, θ̇), or (x, θ) at the first step if `first` is "positions"."""
        velocities = jnp.stack([state.x_dot, state.theta_dot])
        if self.first == "velocities":
            return velocities
        return jnp.where(state.time == 0, jnp.stack([state.x, state.theta]), velocities)

    def observation_space(self, params: Params | None = None) -> spaces.Box:
        """Return the observation space."""
        return spaces.Box(-jnp.inf, jnp.inf, (self.obs_size,), jnp.float32)


TASKS = {
    "PositionOnlyCartPole": Entry(
        PositionOnlyCartPole, levels(num_steps=(200, 400, 600)), gru=(1.0, 1.0, 1.0)
    ),
    "NoisyPositionOnlyCartPole": Entry(
        PositionOnlyCartPole,
        levels(sigma=(0.1, 0.2, 0.3)),
        gru=(0.995, 0.642, 0.390),
        better={"Medium": (0.659, "IndRNN"), "Hard": (0.404, "IndRNN")},
    ),
    "VelocityOnlyCartpole": Entry(VelocityOnlyCartPole, levels(num_steps=(200, 400, 600))),
}
