"""Monoids for the memories, targets, statistics and buffers of later chapters.

| monoid | use |
|---|---|
| `MatrixAffine` | Gated DeltaNet, the LMU, beliefs in a hidden Markov model |
| `Decay` | fast and forgetful memory |
| `Max`, `LogSumExp` | running maxima that fade over time, and their smooth version |
| `LogAffine` | the mLSTM, which has exponential gates |
| `Moments`, `EWMA` | the mean and variance of advantages, the average of parameters |
| `LongMoments` | the mean and variance of all rewards of a run |
| `TopK`, `Window` | reservoirs; frame stacks, and windows of keys and values |

See `core.py` for the interface.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, PyTree, Shaped

from mmrl._dtypes import with_promotion
from mmrl.monoid.core import Monoid, real_elements

# Types of the elements of the monoids below.
Pair = tuple[Float[Array, "*h"], Float[Array, "*h"]]
Triple = tuple[Float[Array, "*h"], Float[Array, "*h"], Float[Array, "*h"]]
ScaledSum = tuple[Float[Array, ""], Float[Array, ""], Float[Array, "*h"]]
Pairs = tuple[Float[Array, "*h"], ...]
Matrices = tuple[Float[Array, "keys keys"], Float[Array, "values keys"]]
Trace = tuple[Complex[Array, "trace context"], Float[Array, ""]]
Largest = tuple[Float[Array, " k"], PyTree[Shaped[Array, "k ..."]]]
Items = tuple[Float[Array, "k ..."], Float[Array, ""]]


class MatrixAffine(Monoid):
    """Affine maps with a matrix on the right: (M, X) • (M', X') = (M M', X M' + X').

    The state X has shape [`values`, `keys`] and maps keys to values, so transitions multiply its
    key axis. In Gated DeltaNet, M = α (I - β k kᵀ) and X = β v kᵀ (Yang et al. 2025, Eq. 10). If M
    contains the transition matrices of a hidden Markov model and X is empty (`values` = 0), the
    products M compute the exact belief over hidden states.
    """

    values: int = eqx.field(static=True)
    keys: int = eqx.field(static=True)

    def identity(self) -> Matrices:
        """Return the identity matrix and X = 0."""
        return jnp.eye(self.keys), jnp.zeros((self.values, self.keys))

    @with_promotion
    def __call__(self, a: Matrices, b: Matrices) -> Matrices:
        (a_map, a_sum), (b_map, b_sum) = a, b
        return a_map @ b_map, a_sum @ b_map + b_sum


class Decay(Monoid):
    """Decaying sums: (X, t) • (X', t') = (X exp(t' (-α + iω)) + X', t + t').  Eqs. 72-74.

    This is the recurrence of fast and forgetful memory. t is the number of steps that an element
    spans. The unit of α > 0 is 1/step, and the unit of ω is radians per step.
    """

    alpha: Float[Array, " trace"]
    omega: Float[Array, " context"]

    def identity(self) -> Trace:
        """Return a zero trace that spans 0 steps."""
        return jnp.zeros((self.alpha.size, self.omega.size), jnp.complex64), jnp.zeros(())

    @with_promotion
    def __call__(self, a: Trace, b: Trace) -> Trace:
        (a_trace, a_time), (b_trace, b_time) = a, b
        return a_trace * self.gain(b_time) + b_trace, a_time + b_time

    @with_promotion
    def gain(self, time: Float[Array, ""]) -> Complex[Array, "trace context"]:
        """Return exp(t (-α + iω)), the factor by which a trace is multiplied over t steps.

        The element (X, t) represents the affine map h ↦ gain(t) h + X.
        """
        fade, turn = jnp.exp(-time * self.alpha), jnp.exp(1j * (time * self.omega))
        return fade[:, None] * turn[None, :]


class Max(Monoid):
    """Maxima that fade over time: (w, m) • (w', m') = (w + w', max(m + w', m')), with w ≤ 0.

    These are affine maps of the max-plus algebra; the paper leaves a "max operator" as future work.
    Elements include the total fade w, because an operator that fades the past by a constant in
    every product, such as max(γ m, m'), is not associative. With w = 0 the maximum does not fade.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Pair:
        """Return w = 0 and m = -∞."""
        return jnp.zeros(self.shape), jnp.full(self.shape, -jnp.inf)

    @with_promotion
    def __call__(self, a: Pair, b: Pair) -> Pair:
        (a_fade, a_max), (b_fade, b_max) = real_elements(self, a), b
        return a_fade + b_fade, jnp.maximum(a_max + b_fade, b_max)


class LogSumExp(Monoid):
    """Affine maps in the log domain: (w, m) • (w', m') = (w + w', log(e^(m + w') + e^m')).

    The element (w, m) represents the map h ↦ e^w h + e^m. Logarithms avoid overflow.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Pair:
        """Return w = 0 and m = -∞."""
        return jnp.zeros(self.shape), jnp.full(self.shape, -jnp.inf)

    @with_promotion
    def __call__(self, a: Pair, b: Pair) -> Pair:
        (a_fade, a_log), (b_fade, b_log) = real_elements(self, a), b
        past_log = a_log + b_fade
        # If both sums are empty, the result is -∞ with gradient 0. JAX's gradient would be NaN.
        empty = jnp.maximum(past_log, b_log) == -jnp.inf
        both = jnp.logaddexp(jnp.where(empty, 0, past_log), jnp.where(empty, 0, b_log))
        return a_fade + b_fade, jnp.where(empty, -jnp.inf, both)


class LogAffine(Monoid):
    """Maps h ↦ e^w h + e^m X under composition, stored so that they do not overflow.

    (w, m, X) • (w', m', X') = (w + w', M, e^{m + w' - M} X + e^{m' - M} X'), M = max(m + w', m').
    Beck et al. 2024, Eqs. 15-17. The monoid is equivalent to `Affine` with a scalar gain. M has no
    gradient, because it only determines how the sum e^m X is split into its factors.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> ScaledSum:
        """Return w = 0, m = -∞ and X = 0."""
        return jnp.zeros(()), jnp.full((), -jnp.inf), jnp.zeros(self.shape)

    @with_promotion
    def __call__(self, a: ScaledSum, b: ScaledSum) -> ScaledSum:
        (a_log, a_scale, a_sum), (b_log, b_scale, b_sum) = a, b
        past_scale = a_scale + b_log
        scale = jax.lax.stop_gradient(jnp.maximum(past_scale, b_scale))
        largest = jnp.where(scale == -jnp.inf, 0.0, scale)  # -∞ if both elements are empty
        parts = jnp.exp(past_scale - largest) * a_sum, jnp.exp(b_scale - largest) * b_sum
        return a_log + b_log, scale, parts[0] + parts[1]


class Moments(Monoid):
    """Count, mean and sum of squared deviations of a sample, (n, μ, M₂).

    Chan, Golub & LeVeque 1979, Eq. 2.1. The element of one observation is f(x) = (1, x, 0), and the
    variance is M₂ / n. Instead of 1, an observation may have any non-negative weight. In float32, n
    cannot exceed 2²⁴ observations of weight 1; use `LongMoments` for larger samples. A weight that
    is lost when n is rounded is also omitted from μ and M₂, so the variance remains correct.

        >>> one, two = (tuple(map(jnp.float32, (1, x, 0))) for x in (3, 5))
        >>> [float(x) for x in Moments()(one, two)]  # count, mean, sum of squares
        [2.0, 4.0, 2.0]
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Triple:
        """Return zeros, the moments of an empty sample."""
        zero = jnp.zeros(self.shape)
        return zero, zero, zero

    @with_promotion
    def __call__(self, a: Triple, b: Triple) -> Triple:
        (a_count, a_mean, a_square), (b_count, b_mean, b_square) = a, b
        count = a_count + b_count
        later = b_count > a_count
        b_weight = jnp.where(later, b_count, count - a_count)  # weight of b after n is rounded
        part = b_weight / jnp.where(b_count > 0, b_count, 1)
        share = b_weight / jnp.where(count > 0, count, 1)
        step = b_mean - a_mean
        # Start from the mean of the larger sample, so the result is exact if the other is empty.
        mean = jnp.where(later, b_mean - (1 - share) * step, a_mean + share * step)
        return count, mean, a_square + part * b_square + a_count * share * step * step


class LongMoments(Monoid):
    """Moments of up to 2⁴⁸ observations in double-single precision, (n, μ, M₂, n', μ', M₂').

    Each statistic is the sum of two float32 numbers, because n', μ' and M₂' contain the rounding
    errors of n, μ and M₂; for example, the count is n + n'. The element of one observation is
    f(x) = (1, x, 0, 0, 0, 0), and the variance is M₂ / n.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Pairs:
        """Return zeros, the moments of an empty sample."""
        return (jnp.zeros(self.shape),) * 6

    @with_promotion
    def __call__(self, a: Pairs, b: Pairs) -> Pairs:
        a_count, a_mean, a_square = zip(a[:3], a[3:], strict=True)
        b_count, b_mean, b_square = zip(b[:3], b[3:], strict=True)
        count = _add(a_count, b_count)
        # The sum of a pair (value, rounding error) rounds to the value. It is still computed,
        # because gradients must flow to both entries.
        a_weight, b_weight, weight = (sum(pair) for pair in (a_count, b_count, count))
        later = b_weight > a_weight
        share = b_weight / jnp.where(weight > 0, weight, 1)
        step = (b_mean[0] - a_mean[0]) + (b_mean[1] - a_mean[1])
        larger = tuple(jnp.where(later, y, x) for x, y in zip(a_mean, b_mean, strict=True))
        mean = _add(larger, (jnp.where(later, share - 1, share) * step, 0))
        square = _add(_add(a_square, b_square), (a_weight * share * step * step, 0))
        return tuple(x for part in zip(count, mean, square, strict=True) for x in part)


def _add(a, b):
    """Add two pairs of a value and its rounding error.  TwoSum, Knuth 1969."""
    total = a[0] + b[0]
    back = total - a[0]
    error = (a[0] - (total - back)) + (b[0] - back) + (a[1] + b[1])
    high = total + error
    return high, error - (high - total)


class EWMA(Monoid):
    """Bias-corrected exponentially weighted moving averages.  Hilton et al. 2022, Appendix A.

    (β, w, m) • (β', w', m') = (β β', w̃ + w', (w̃ m + w' m') / (w̃ + w')), where w̃ = β' w. The
    element of one observation is f(x) = (β, 1, x). Elements contain a mean rather than a sum, so
    the average of a constant is exactly that constant. β = 0 restarts the average.

        >>> first, second = ((jnp.float32(0.5), jnp.float32(1), jnp.float32(x)) for x in (0, 3))
        >>> round(float(EWMA()(first, second)[2]), 3)  # (0.5 · 0 + 3) / (0.5 + 1)
        2.0
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Triple:
        """Return β = 1, w = 0 and m = 0."""
        return jnp.ones(self.shape), jnp.zeros(self.shape), jnp.zeros(self.shape)

    @with_promotion
    def __call__(self, a: Triple, b: Triple) -> Triple:
        (a_beta, a_weight, a_mean), (b_beta, b_weight, b_mean) = a, b
        past_weight = b_beta * a_weight
        weight = past_weight + b_weight
        share = b_weight / jnp.where(weight > 0, weight, 1)
        past = jnp.where(past_weight > 0, a_mean, b_mean)
        return a_beta * b_beta, weight, past + share * (b_mean - past)


class TopK(Monoid):
    """Items with the k largest keys.

    An element is a pair: keys [k] in descending order, and items whose leaves have shape [k, ...].
    Empty slots have the key -∞ and zero items. Among equal keys, earlier items take precedence.
    With random keys this is reservoir sampling (Vitter 1985), and the reservoirs of several actors
    can be merged. `k` must be at least 1.

        >>> low, high = ((jnp.array([u]), jnp.array([i])) for i, u in enumerate((0.2, 0.7)))
        >>> TopK(1, jnp.int32(0))(low, high)[1]  # item 1 has the larger key
        Array([1], dtype=int32)
    """

    k: int = eqx.field(static=True)
    example: PyTree[jax.ShapeDtypeStruct] = eqx.field(static=True)

    def __init__(self, k: int, example: PyTree):
        _check_k(k)
        self.k = k
        self.example = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example)

    def identity(self) -> Largest:
        """Return k empty slots."""
        empty = jax.tree.map(lambda x: jnp.zeros((self.k, *x.shape), x.dtype), self.example)
        return jnp.full(self.k, -jnp.inf), empty

    @with_promotion
    def __call__(self, a: Largest, b: Largest) -> Largest:
        both = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), a, b)
        keys, rows = jax.lax.top_k(both[0], self.k)
        return keys, jax.tree.map(lambda x: x[rows], both[1])


class Window(Monoid):
    """Windows of the last k items of a sequence, as in frame stacking.

    An element is a pair: items of shape [k, ...] with the newest one last, and their count, which
    is at most k. Empty slots are zero. `k` must be at least 1.
    """

    k: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        _check_k(self.k)

    def identity(self) -> Items:
        """Return an empty window."""
        return jnp.zeros((self.k, *self.shape)), jnp.zeros(())

    @with_promotion
    def __call__(self, a: Items, b: Items) -> Items:
        (a_items, a_count), (b_items, b_count) = a, b
        shift = b_count.astype(jnp.int32)
        older = jax.lax.dynamic_slice_in_dim(
            jnp.concatenate([a_items, jnp.zeros_like(a_items)]), shift, self.k
        )
        newer = jnp.arange(self.k) >= self.k - shift
        newer = newer.reshape(-1, *[1] * (a_items.ndim - 1))
        return jnp.where(newer, b_items, older), jnp.minimum(a_count + b_count, self.k)


def _check_k(k: int) -> None:
    if k < 1:
        raise ValueError(f"`k` must be at least 1; got {k}.")
