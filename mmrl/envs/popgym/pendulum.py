"""Pendulum swing-up with a hidden velocity and a continuous action."""

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float

from mmrl._dtypes import with_promotion
from mmrl.envs._gymnax import environment, spaces
from mmrl.envs.popgym.base import (
    Entry,
    Leaf,
    Numbers,
    Params,
    Task,
    check_noise,
    check_positive,
    levels,
    normal,
)

TORQUE, SPEED, DT = 2.0, 8.0, 0.05  # maximum torque [N m], maximum speed [rad/s], time step [s]
MOST = 16.2736044  # maximum cost, π² + 0.1 · 8² + 0.001 · 2², with popgym's rounding


@struct.dataclass
class State(environment.EnvState):
    """State of the pendulum, and the observation noise."""

    time: Leaf  # int32: number of steps taken
    theta: Leaf  # float32: angle from upright [rad]
    theta_dot: Leaf  # float32: angular velocity [rad/s]
    noise: Leaf  # float32 [2]: noise of cos θ and sin θ, in units of sigma


class PositionOnlyPendulum(Task):
    """Pendulum swing-up with a hidden velocity.

    The action is a torque u of shape (1,), clipped to [-2, 2] N m. The observation is
    clip((cos θ, sin θ) + σ z, -1, 1) with z ~ N(0, 1). The reward is

        r_t = (1 - 2c/c_max)/T with c = θ² + 0.1 θ̇² + 0.001 u²,

    where θ ∈ [-π, π) and θ̇ are the angle and the velocity before the step. An episode is truncated
    after T = num_steps steps, and its return is in [-1, 1]. Set `sigma` > 0 for popgym's
    NoisyPositionOnlyPendulum. Without noise, the harder levels differ only in their shorter
    episodes.
    """

    def __init__(self, num_steps: int = 200, sigma: float = 0.0):
        check_positive("num_steps", num_steps, "the Easy level uses 200")
        check_noise(sigma, "on the cosine and the sine")
        self.num_steps, self.sigma, self.actions = num_steps, float(sigma), 1
        self.obs_size, self.state_size = 2, 3
        noises = 2 if sigma > 0 else 0
        self.start_numbers, self.step_numbers = 2 + noises, noises

    def start(self, u: Numbers, params: Params) -> State:
        """Return the initial state of an episode."""
        theta, theta_dot = (2 * u[:2] - 1) * jnp.array([jnp.pi, 1], jnp.float32)
        return State(jnp.int32(0), theta, theta_dot, self._noise(u[2:]))

    def advance(
        self, u: Numbers, state: State, action: Float[Array, " 1"], params: Params
    ) -> tuple[State, Float[Array, ""]]:
        """Return the next state and the reward."""
        torque = jnp.clip(jnp.asarray(action, jnp.float32).reshape(()), -TORQUE, TORQUE)
        theta, speed = state.theta, state.theta_dot
        angle = jnp.mod(theta + jnp.pi, 2 * jnp.pi) - jnp.pi
        cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = jnp.clip(speed + DT * (15 * jnp.sin(theta) + 3 * torque), -SPEED, SPEED)
        after = State(state.time + 1, theta + DT * speed, speed, self._noise(u))
        return after, (1 - 2 * cost / MOST) / self.num_steps

    @with_promotion
    def look(self, state: State, params: Params) -> Float[Array, " obs"]:
        """Return (cos θ, sin θ) with noise, clipped to [-1, 1]."""
        place = jnp.stack([jnp.cos(state.theta), jnp.sin(state.theta)])
        return jnp.clip(place + self.sigma * state.noise, -1, 1)

    def is_terminated(self, state: State, params: Params) -> Bool[Array, ""]:
        """Return False, because only the time limit ends an episode."""
        return jnp.asarray(False)

    def action_space(self, params: Params | None = None) -> spaces.Box:
        """Return the action space."""
        return spaces.Box(-TORQUE, TORQUE, (1,), jnp.float32)

    def observation_space(self, params: Params | None = None) -> spaces.Box:
        """Return the observation space."""
        return spaces.Box(-1.0, 1.0, (self.obs_size,), jnp.float32)

    def state_space(self, params: Params | None = None) -> spaces.Box:
        """Return the space of `state_obs`."""
        high = jnp.array([1, 1, SPEED], jnp.float32)
        return spaces.Box(-high, high, (self.state_size,), jnp.float32)

    def state_obs(self, state: State, params: Params) -> Float[Array, " state"]:
        """Return (cos θ, sin θ, θ̇) without noise."""
        return jnp.stack([jnp.cos(state.theta), jnp.sin(state.theta), state.theta_dot])

    def _noise(self, u: Numbers) -> Float[Array, " obs"]:
        return normal(u) if self.sigma > 0 else jnp.zeros(self.obs_size)


TASKS = {
    "PositionOnlyPendulum": Entry(PositionOnlyPendulum, levels(num_steps=(200, 150, 100))),
    "NoisyPositionOnlyPendulum": Entry(PositionOnlyPendulum, levels(sigma=(0.1, 0.2, 0.3))),
}
