"""Learning targets: one affine recurrence, read from the end of the tape.

    y_t = x_t + g_t y_{t+1}                    until the episode's last step, where y_t = x_t

Every target below is this recurrence with its own x and g. It is a product of the affine maps y ↦
x_t + g_t y, and so a `scan` of `Affine`: Theorems 3.3 and D.1 of Morad et al. 2024 prove it for the
discounted return and GAE. Their operator (Eqs. 17 and 55) is `Affine` with its arguments swapped;
run forwards, as printed, it sums what has happened *so far*. A target needs the future, so the tape
is read backwards.

All functions take one tape of many episodes; use `jax.vmap` for several tapes. Arguments come in
one order, each with one entry per step t of the tape, except the scalars at the end:

    rewards        r_t, which followed action a_t
    discount       γ_t = γ (1 - terminated_t), from `discounts`
    values         v_t = V(o_t), or Q(o_t, a_t) for `retrace`
    next_values    v'_t = V(o'_t), where a_t led to o'_t, also if the episode ended there
    last           terminated_t or truncated_t: step t + 1, if any, belongs to another episode
    ratio          π(a_t | s_t) / μ(a_t | s_t), where μ is the policy that acted

At a termination γ_t = 0, so nothing is added to r_t. At a truncation, and at the end of a tape that
stops within an episode, the target bootstraps: v'_t stands for the rest of the episode. No value of
the next episode is read, not even a NaN, nor a v'_t where γ_t = 0. Targets are not wrapped in
`stop_gradient`. The scalars γ, λ, ρ̄ and c̄ may be traced. Arrays may be lists or have any type;
they are converted to one floating-point type. Arrays of different lengths raise `ValueError`, as
does a γ or λ outside [0, 1] that is not traced.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from mmrl._dtypes import converting, floats, whole
from mmrl.monoid import Affine, Resettable
from mmrl.scan import scan

Scalar = float | int | Float[Array, ""]
Steps = Float[Array, " time"]
"""One number for each step of the tape."""
Flags = Bool[Array, " time"]


@converting()
def discounts(gamma: Scalar, terminated: Flags) -> Steps:
    """Return γ_t = γ (1 - terminated_t), which is 0 where the episode terminates.

    A truncated step keeps its discount, because its future exists even though it was not observed.
    """
    return jnp.where(terminated, 0.0, gamma)


@converting("discount", "values")
def bootstrap(discount: Steps, values: Steps) -> Steps:
    """Return γ_t v'_t, which is 0 where γ_t = 0, even if v'_t is NaN or infinite."""
    unread = (discount == 0) & ~jnp.isfinite(values)
    return discount * jnp.where(unread, 0, values)


@converting("rewards", "discount", "next_values")
def discounted(
    rewards: Steps, discount: Steps, next_values: Steps | None = None, last: Flags | None = None
) -> Steps:
    """Return the discounted return from each step on.  Theorem 3.3, Eqs. 14-19.

    G_t = r_t + γ_t G_{t+1}, and r_t + γ_t v'_t at the last step. Without `next_values` there is no
    bootstrap. Without `last` the tape is one episode, which also ends wherever γ_t = 0.
    """
    given = {} if next_values is None else {"next_values": next_values}
    flags = jnp.zeros(rewards.shape, bool) if last is None else last
    flags = _ends(flags, rewards=rewards, discount=discount, **given)
    if next_values is not None:
        rewards = rewards + bootstrap(jnp.where(flags, discount, 0), next_values)
    if last is None:
        return scan(Affine(), (discount, rewards), reverse=True)[1]
    return _backward(((discount, rewards), flags))


@converting("rewards", "discount", "next_values")
def n_step(rewards: Steps, discount: Steps, next_values: Steps, last: Flags, n: int) -> Steps:
    """Return the n-step return from each step on.  Sutton & Barto 2018, Eq. 7.1.

    G_t = r_t + γ_t r_{t+1} + … + γ_t⋯γ_{t+n-1} v'_{t+n-1}, with fewer terms near the end of an
    episode. This is not a scan: each step has a separate window, and two scans cannot be divided
    because γ_t may be 0. Windows of 1, 2, 4, … steps are built by doubling, in about 2 log₂n
    combines per step. R2D2's target is h(G) with v' = h⁻¹(q).

    Raises `ValueError` unless n is a whole number of at least 1.
    """
    n = whole("n", n)
    last = _ends(last, rewards=rewards, discount=discount, next_values=next_values)
    total = rewards + bootstrap(jnp.where(last, discount, 0), next_values)
    (gain, total), ended = _windows(((discount, total), last), n)
    return total + bootstrap(jnp.where(ended, 0, gain), _shift(next_values, n - 1, 0))


@converting("rewards", "discount", "next_values")
def lambda_return(
    rewards: Steps, discount: Steps, next_values: Steps, last: Flags, lam: Scalar
) -> Steps:
    """Return the λ-return from each step on.  Sutton & Barto 2018, Eq. 12.18.

    G_t = r_t + γ_t ((1-λ) v'_t + λ G_{t+1}). λ = 1 gives `discounted`, λ = 0 the one-step target
    r_t + γ_t v'_t.
    """
    last = _ends(last, rewards=rewards, discount=discount, next_values=next_values)
    seen = jnp.where(last, 1, 1 - lam)
    return _backward(((discount * lam, rewards + bootstrap(discount * seen, next_values)), last))


@converting("rewards", "discount", "values", "next_values")
def gae(
    rewards: Steps, discount: Steps, values: Steps, next_values: Steps, last: Flags, lam: Scalar
) -> Steps:
    """Return generalized advantage estimates.  Theorem D.1; Schulman et al. 2016.

    A_t = δ_t + γ_t λ A_{t+1}, where δ_t = r_t + γ_t v'_t - v_t. A_t + v_t is the λ-return. λ = 0
    gives the TD error δ_t, λ = 1 the return minus the value.
    """
    last = _ends(last, rewards=rewards, discount=discount, values=values, next_values=next_values)
    return _backward(((discount * lam, rewards + bootstrap(discount, next_values) - values), last))


class VTrace(NamedTuple):
    """Value targets, and policy-gradient advantages that already include the weight ρ."""

    values: Steps
    advantages: Steps


@converting("rewards", "discount", "values", "next_values", "ratio")
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
    determines which policy's values are learned, and c_t = λ min(c̄, ratio_t) how fast. Advantages
    are ρ_t (r_t + γ_t v̂_{t+1} - v_t), with v'_t for v̂_{t+1} at the last step. On-policy (ratio =
    1) v̂ is the λ-return; with ρ̄ = c̄ = ∞ it is full importance sampling.
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


@converting("rewards", "discount", "values", "next_values", "ratio")
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

    G_t = r_t + γ_t (v'_t + c_{t+1} (G_{t+1} - q_{t+1})), where c_t = λ min(1, ratio_t). Here
    `values` are q_t = Q(o_t, a_t) and `next_values` are the means v'_t = Σ_a π(a | o'_t) Q(o'_t,
    a). The target is conditioned on the first action, so ratio_0 is not read.
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
    corrected = bootstrap(discount, next_values - c * q_ahead)
    return _backward(((discount * c, rewards + corrected), last))


@converting("x")
def rescale(x: Float[Array, "*shape"], eps: Scalar = 1e-3) -> Float[Array, "*shape"]:
    """Compress large returns: h(x) = sign(x) (√(|x| + 1) - 1) + εx.  Pohlen et al. 2018.

    Computed as x / (√(|x| + 1) + 1) + εx, which does not cancel near 0.
    """
    return x / (jnp.sqrt(jnp.abs(x) + 1) + 1) + eps * x


@converting("y")
def unrescale(y: Float[Array, "*shape"], eps: Scalar = 1e-3) -> Float[Array, "*shape"]:
    """Invert `rescale`: h⁻¹(y) = sign(y) q (q + 2), q = 2|y| / (1 + 2ε + √((1 + 2ε)² + 4ε|y|)).

    q = √(|x| + 1) - 1 solves |y| = q + ε q (q + 2). The closed form in the literature subtracts two
    numbers near 1 and divides by ε²: in float32 its error is up to 10 % below |x| = 0.1, where this
    form keeps six digits.
    """
    b = 1 + 2 * eps
    q = 2 * y / (b + jnp.sqrt(b**2 + 4 * eps * jnp.abs(y)))
    return q * (jnp.abs(q) + 2)


Maps = tuple[tuple[Steps, Steps], Flags]
"""((g_t, x_t), last_t): the maps y ↦ x_t + g_t y, and the steps that forget y."""

# A backward pass begins an episode at its last step.
_MONOID = Resettable(Affine())


def _backward(maps: Maps) -> Steps:
    """Return y_t = x_t + g_t y_{t+1}, and x_t at the last step."""
    return scan(_MONOID, (tuple(floats(*maps[0])), maps[1]), reverse=True)[0][1]


def _windows(maps: Maps, n: int) -> Maps:
    """Return the product of n consecutive maps from each step on, along the binary digits of n."""

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
    """Return x_{t+steps}, and `fill` beyond the end."""
    steps = min(steps, x.size)
    return jnp.concatenate([x[steps:], jnp.full(steps, fill, x.dtype)])


def _ends(last: Flags, **arrays: Steps) -> Flags:
    """Return `last` with the end of the tape added, after checking that all lengths agree."""
    if last.ndim != 1 or last.dtype != bool:
        raise ValueError(
            f"`last` must be one boolean per step of one tape; got {last.dtype}{list(last.shape)}. "
            "Use `terminated | truncated`, and `jax.vmap` for several tapes."
        )
    for name, array in arrays.items():
        if jnp.shape(array) != last.shape:
            hint = " `discounts` computes it from γ." if name == "discount" else ""
            raise ValueError(
                f"`{name}` must have one entry per step, {list(last.shape)}; got "
                f"{list(jnp.shape(array)) or 'a scalar'}.{hint}"
            )
    return last | (jnp.arange(last.size) == last.size - 1)
