"""Returns, advantages and other learning targets, all computed by one affine recurrence.

    y_t = x_t + g_t y_{t+1}                    until the episode's last step, where y_t = x_t

Each function below defines its own x and g. The recurrence is a product of the affine maps
y ↦ x_t + g_t y, so it is a `scan` of `Affine`. Morad et al. 2024 prove this for the discounted
return and for GAE (Theorems 3.3 and D.1). Their operator (Eqs. 17 and 55) is `Affine` with its
arguments swapped. Applied forward, as printed in the paper, it accumulates past rewards. A target
depends on future rewards instead, so the scans in this module run in reverse.

All functions operate on a single tape, which may contain many episodes; use `jax.vmap` for several
tapes. Arguments are always in this order, and all except the scalars at the end have one entry per
step t:

    rewards        r_t, the reward for action a_t
    discount       γ_t = γ (1 - terminated_t), from `discounts`
    values         v_t = V(o_t), or Q(o_t, a_t) for `retrace`
    next_values    v'_t = V(o'_t), where o'_t is the observation after a_t, even at episode ends
    last           terminated_t or truncated_t: step t + 1 is in the next episode
    ratio          π(a_t | s_t) / μ(a_t | s_t), where μ is the behavior policy

At a termination γ_t = 0, so the target is r_t. At a truncation, and at the end of a tape that stops
within an episode, the target bootstraps from v'_t. Values of the next episode, and v'_t where γ_t =
0, have no effect, even if they are NaN.

Targets are not wrapped in `stop_gradient`. The scalars γ, λ, ρ̄ and c̄ may be traced. Arrays may be
lists, and may have any dtype; they are converted to a common floating-point dtype. All functions
raise `ValueError` if lengths differ, if γ or λ is outside [0, 1], or if ρ̄, c̄ or ε is negative.
Traced scalars are not checked.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from mmrl._dtypes import convert_arguments, floats, whole
from mmrl.monoid import Affine, Resettable
from mmrl.scan import scan

Scalar = float | int | Float[Array, ""]
Steps = Float[Array, " time"]
"""One value per step of the tape."""
Flags = Bool[Array, " time"]


@convert_arguments()
def discounts(gamma: Scalar, terminated: Flags) -> Steps:
    """Return the discounts γ_t = γ (1 - terminated_t).

    The discount of a truncated step remains γ, because the episode would have continued.

        >>> print(discounts(0.5, [False, True]))
        [0.5 0. ]
    """
    return jnp.where(terminated, 0.0, gamma)


@convert_arguments("discount", "values")
def bootstrap(discount: Steps, values: Steps) -> Steps:
    """Return γ_t v'_t, which is 0 where γ_t = 0, even if v'_t is NaN or infinite."""
    unused = (discount == 0) & ~jnp.isfinite(values)
    return discount * jnp.where(unused, 0, values)


@convert_arguments("rewards", "discount", "next_values")
def discounted_return(
    rewards: Steps, discount: Steps, next_values: Steps | None = None, last: Flags | None = None
) -> Steps:
    """Return the discounted return of each step.  Theorem 3.3, Eqs. 14-19.

    G_t = r_t + γ_t G_{t+1}, and r_t + γ_t v'_t at the last step of an episode. If `next_values` is
    None, the return does not bootstrap. If `last` is None, the tape is treated as one episode,
    which also ends wherever γ_t = 0; only a NaN passes such a step, unless `last` is given.

        >>> discounted_return([0.0, 0.0, 4.0], [0.5, 0.5, 0.0])
        Array([1., 2., 4.], dtype=float32)
    """
    values = {} if next_values is None else {"next_values": next_values}
    flags = jnp.zeros(rewards.shape, bool) if last is None else last
    flags = _ends(flags, rewards=rewards, discount=discount, **values)
    if next_values is not None:
        rewards = rewards + bootstrap(jnp.where(flags, discount, 0), next_values)
    if last is None:
        return scan(Affine(), (discount, rewards), reverse=True)[1]
    return _backward(((discount, rewards), flags))


@convert_arguments("rewards", "discount", "next_values")
def n_step(rewards: Steps, discount: Steps, next_values: Steps, last: Flags, n: int) -> Steps:
    """Return the n-step return of each step.  Sutton & Barto 2018, Eq. 7.1.

    G_t = r_t + γ_t r_{t+1} + … + γ_t⋯γ_{t+n-1} v'_{t+n-1}, with fewer terms near the end of an
    episode. Each return is a product of affine maps in a window of n steps, not a quotient of two
    prefixes, because γ_t may be 0. Windows of 1, 2, 4, … steps are built by doubling, with about
    2 log₂n products per step. R2D2's target is h(G_t) with v' = h⁻¹(q), where h is `rescale`.

    Raises `ValueError` unless n is an integer of at least 1.

        >>> last = [False, False, True]
        >>> n_step([0.0, 0.0, 4.0], [0.5, 0.5, 0.0], [2.0, 2.0, 0.0], last, n=2)
        Array([0.5, 2. , 4. ], dtype=float32)
    """
    n = whole("n", n)
    last = _ends(last, rewards=rewards, discount=discount, next_values=next_values)
    total = rewards + bootstrap(jnp.where(last, discount, 0), next_values)
    (gain, total), ends = _windows(((discount, total), last), n)
    return total + bootstrap(jnp.where(ends, 0, gain), _shift(next_values, n - 1, 0))


@convert_arguments("rewards", "discount", "next_values")
def lambda_return(
    rewards: Steps, discount: Steps, next_values: Steps, last: Flags, lam: Scalar
) -> Steps:
    """Return the λ-return of each step.  Sutton & Barto 2018, Eq. 12.18.

    G_t = r_t + γ_t ((1-λ) v'_t + λ G_{t+1}), where γ_t is `discount` and v'_t is `next_values`, the
    value of the observation after step t. At the last step of an episode, G_t = r_t + γ_t v'_t.
    λ = 1 gives `discounted_return`, and λ = 0 gives one-step targets.

        >>> rewards, discount = [0.0, 0.0, 4.0], [0.5, 0.5, 0.0]
        >>> last = [False, False, True]
        >>> lambda_return(rewards, discount, [2.0, 2.0, 0.0], last, lam=0.5)
        Array([0.875, 1.5  , 4.   ], dtype=float32)
    """
    last = _ends(last, rewards=rewards, discount=discount, next_values=next_values)
    share = jnp.where(last, 1, 1 - lam)
    return _backward(((discount * lam, rewards + bootstrap(discount * share, next_values)), last))


@convert_arguments("rewards", "discount", "values", "next_values")
def gae(
    rewards: Steps, discount: Steps, values: Steps, next_values: Steps, last: Flags, lam: Scalar
) -> Steps:
    """Return generalized advantage estimates.  Theorem D.1; Schulman et al. 2016.

    A_t = δ_t + γ_t λ A_{t+1} with the TD error δ_t = r_t + γ_t v'_t - v_t. The sum A_t + v_t is the
    λ-return. λ = 0 gives δ_t, and λ = 1 gives the discounted return minus v_t.

        >>> v, v_next, last = [1.0, 2.0], [2.0, 0.0], [False, True]
        >>> gae([0.0, 4.0], [0.5, 0.0], v, v_next, last, lam=0.5)
        Array([0.5, 2. ], dtype=float32)
    """
    last = _ends(last, rewards=rewards, discount=discount, values=values, next_values=next_values)
    return _backward(((discount * lam, rewards + bootstrap(discount, next_values) - values), last))


class VTrace(NamedTuple):
    """Value targets and policy-gradient advantages of V-trace."""

    values: Steps
    advantages: Steps


@convert_arguments("rewards", "discount", "values", "next_values", "ratio")
def vtrace(
    rewards: Steps,
    discount: Steps,
    values: Steps,
    next_values: Steps,
    last: Flags,
    ratio: Steps,
    *,
    lam: Scalar = 1.0,
    rho_max: Scalar = 1.0,
    c_max: Scalar = 1.0,
) -> VTrace:
    """Return V-trace targets and advantages.  Espeholt et al. 2018, Eq. 1, Remark 1.

    v̂_t = v_t + ρ_t δ_t + γ_t c_t (v̂_{t+1} - v_{t+1}). The weight ρ_t = min(ρ̄, ratio_t)
    determines the policy whose values are learned, and c_t = λ min(c̄, ratio_t) determines the
    speed of learning. The advantages ρ_t (r_t + γ_t v̂_{t+1} - v_t) include the weight ρ_t, and use
    v'_t instead of v̂_{t+1} at the last step. On-policy data (ratio = 1) give the λ-return, and ρ̄
    = c̄ = ∞ gives full importance sampling.

        >>> v, v_next, last = [1.0, 2.0], [2.0, 0.0], [False, True]
        >>> vtrace([0.0, 4.0], [0.5, 0.0], v, v_next, last, ratio=[0.5, 2.0]).values
        Array([1.5, 4. ], dtype=float32)
    """
    last = _ends(
        last,
        rewards=rewards,
        discount=discount,
        values=values,
        next_values=next_values,
        ratio=ratio,
    )
    rho, c = jnp.minimum(rho_max, ratio), lam * jnp.minimum(c_max, ratio)
    delta = rewards + bootstrap(discount, next_values) - values
    targets = values + _backward(((discount * c, rho * delta), last))
    ahead = jnp.where(last, next_values, _shift(targets, 1, 0))
    return VTrace(targets, rho * (rewards + bootstrap(discount, ahead) - values))


@convert_arguments("rewards", "discount", "values", "next_values", "ratio")
def retrace(
    rewards: Steps,
    discount: Steps,
    values: Steps,
    next_values: Steps,
    last: Flags,
    ratio: Steps,
    lam: Scalar,
) -> Steps:
    """Return Retrace(λ) targets for action values.  Munos et al. 2016, Eqs. 3-4.

    G_t = r_t + γ_t (v'_t + c_{t+1} (G_{t+1} - q_{t+1})) with c_t = λ min(1, ratio_t). Here `values`
    are q_t = Q(o_t, a_t), and `next_values` are the expectations v'_t = Σ_a π(a | o'_t) Q(o'_t, a).
    The ratio of the first step is not used, because the target is conditioned on its action.
    """
    last = _ends(
        last,
        rewards=rewards,
        discount=discount,
        values=values,
        next_values=next_values,
        ratio=ratio,
    )
    c = lam * jnp.minimum(1, jnp.where(last, 0, _shift(ratio, 1, 0)))
    q_ahead = jnp.where(last, 0, _shift(values, 1, 0))
    rest = bootstrap(discount, next_values - c * q_ahead)
    return _backward(((discount * c, rewards + rest), last))


@convert_arguments("x")
def rescale(x: Float[Array, "*shape"], eps: Scalar = 1e-3) -> Float[Array, "*shape"]:
    """Return h(x) = sign(x) (√(|x| + 1) - 1) + εx, which compresses returns.  Pohlen et al. 2018.

    The equivalent form x / (√(|x| + 1) + 1) + εx avoids cancellation near 0.

        >>> rescale([-3.0, 0.0, 3.0], eps=0.0)
        Array([-1.,  0.,  1.], dtype=float32)
    """
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + eps * x


@convert_arguments("y")
def unrescale(y: Float[Array, "*shape"], eps: Scalar = 1e-3) -> Float[Array, "*shape"]:
    """Return h⁻¹(y), the inverse of `rescale`.

    h⁻¹(y) = sign(y) q (q + 2) with q = 2|y| / (1 + 2ε + √((1 + 2ε)² + 4ε|y|)), because the value
    q = √(|x| + 1) - 1 solves |y| = q + ε q (q + 2). The closed form in the literature subtracts two
    values near 1 and divides the difference by ε². In float32, its error is about 1 % at |x| = 0.01
    and 10 % at |x| = 0.001, where the form used here is accurate to six digits.

        >>> unrescale([-1.0, 0.0, 1.0], eps=0.0)
        Array([-3.,  0.,  3.], dtype=float32)
    """
    b = 1 + 2 * eps
    q = 2 * y / (b + jnp.sqrt(b**2 + 4 * eps * jnp.abs(y)))
    return q * (jnp.abs(q) + 2)


Maps = tuple[tuple[Steps, Steps], Flags]
"""((g_t, x_t), last_t): the maps y ↦ x_t + g_t y, and flags at which y is reset to x_t."""

# A reverse scan visits the last step of an episode first, so `last` is the begin flag.
_MONOID = Resettable(Affine())


def _backward(maps: Maps) -> Steps:
    """Return y_t = x_t + g_t y_{t+1}, with y_t = x_t at the last step."""
    return scan(_MONOID, (tuple(floats(*maps[0])), maps[1]), reverse=True)[0][1]


def _windows(maps: Maps, n: int) -> Maps:
    """Return the products of n consecutive maps, starting at each step.

    Windows are combined by repeated doubling, according to the binary digits of n.
    """

    def later(maps, steps):
        return jax.tree.map(lambda x, e: _shift(x, steps, e), maps, _MONOID.identity())

    def grow(near, steps, far):
        return jax.vmap(_MONOID)(later(far, steps), near)

    gains, sums = floats(*maps[0])
    maps = (gains, sums), maps[1]
    windows, width = maps, 1
    for digit in f"{n:b}"[1:]:
        windows, width = grow(windows, width, windows), 2 * width
        if digit == "1":
            windows, width = grow(windows, width, maps), width + 1
    return windows


def _shift(x: Shaped[Array, " time"], steps: int, fill: Any) -> Shaped[Array, " time"]:
    """Return x_{t+steps}, padded with `fill` at the end."""
    steps = min(steps, x.size)
    return jnp.concatenate([x[steps:], jnp.full(steps, fill, x.dtype)])


def _ends(last: Flags, **arrays: Steps) -> Flags:
    """Return `last` with the last step of the tape set, after checking all shapes."""
    if last.ndim != 1 or last.dtype != bool:
        raise ValueError(
            f"`last` must be a boolean array of shape [time]; got {last.dtype}{list(last.shape)}. "
            "Pass `terminated | truncated`, and use `jax.vmap` for several tapes."
        )
    for name, array in arrays.items():
        if jnp.shape(array) != last.shape:
            hint = " Compute it with `discounts`." if name == "discount" else ""
            raise ValueError(
                f"`{name}` must have one entry per step, {list(last.shape)}; got "
                f"{list(jnp.shape(array)) or 'a scalar'}.{hint}"
            )
    return last | (jnp.arange(last.size) == last.size - 1)
