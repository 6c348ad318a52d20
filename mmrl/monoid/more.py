"""More monoids, each for a memory, a target, a statistic or a buffer of a later chapter.

| monoid | use |
|---|---|
| `MatrixAffine` | Gated DeltaNet, the LMU, the belief of a hidden Markov model |
| `Decay` | fast and forgetful memory |
| `Max`, `LogSumExp` | a maximum that fades, and its soft form |
| `LogAffine` | the mLSTM, whose gates are exponentials |
| `Moments`, `EWMA` | the mean and variance of advantages, the average of parameters |
| `LongMoments` | the mean and variance of all rewards of a run |
| `TopK`, `Window` | a reservoir, a stack of frames or of keys and values |

Read `core.py` first.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float, PyTree, Shaped

from mmrl._dtypes import promoting
from mmrl.monoid.core import Monoid

# Types of the elements, named after the terms of each monoid's equation.
Pair = tuple[Float[Array, "*h"], Float[Array, "*h"]]
Triple = tuple[Float[Array, "*h"], Float[Array, "*h"], Float[Array, "*h"]]
Scaled = tuple[Float[Array, ""], Float[Array, ""], Float[Array, "*h"]]
Pairs = tuple[Float[Array, "*h"], ...]
Matrices = tuple[Float[Array, "keys keys"], Float[Array, "values keys"]]
Trace = tuple[Complex[Array, "trace context"], Float[Array, ""]]
Largest = tuple[Float[Array, " k"], PyTree[Shaped[Array, "k ..."]]]
Items = tuple[Float[Array, "k ..."], Float[Array, ""]]


class MatrixAffine(Monoid):
    """Affine maps with a matrix that acts from the right: (M, X) • (M', X') = (M M', X M' + X').

    The state X maps keys to values, so a transition multiplies on the key side. `values` × `keys`
    is the shape of X. Gated DeltaNet is M = α (I - β k kᵀ), X = β v kᵀ (Yang et al. 2025, Eq. 10).
    With M the transition matrix of a hidden Markov model and X empty, the product is the exact
    belief.
    """

    values: int = eqx.field(static=True)
    keys: int = eqx.field(static=True)

    def identity(self) -> Matrices:
        """Return the identity matrix and a zero sum."""
        return jnp.eye(self.keys), jnp.zeros((self.values, self.keys))

    @promoting
    def __call__(self, a: Matrices, b: Matrices) -> Matrices:
        (a_map, a_sum), (b_map, b_sum) = a, b
        return a_map @ b_map, a_sum @ b_map + b_sum


class Decay(Monoid):
    """A sum that fades: (X, t) • (X', t') = (X exp(t' (-α + iω)) + X', t + t').  Eqs. 72-74.

    This is the trace of fast and forgetful memory. `t` counts steps since the start, so the length
    of a block determines its decay. α > 0 is in 1/steps, ω in radians per step.
    """

    alpha: Float[Array, " trace"]
    omega: Float[Array, " context"]

    def identity(self) -> Trace:
        """Return an empty trace of 0 steps."""
        return jnp.zeros((self.alpha.size, self.omega.size), jnp.complex64), jnp.zeros(())

    @promoting
    def __call__(self, a: Trace, b: Trace) -> Trace:
        (a_trace, a_time), (b_trace, b_time) = a, b
        return a_trace * self.gain(b_time) + b_trace, a_time + b_time

    @promoting
    def gain(self, time: Float[Array, ""]) -> Complex[Array, "trace context"]:
        """Return exp(t (-α + iω)), the factor by which t steps fade a trace.

        The element (X, t) is short for the affine map (gain(t), X).
        """
        fade, turn = jnp.exp(-time * self.alpha), jnp.exp(1j * (time * self.omega))
        return fade[:, None] * turn[None, :]


class Max(Monoid):
    """The largest value, faded by w ≤ 0 per step: (w, m) • (w', m') = (w + w', max(m + w', m')).

    These are max-plus affine maps, the "max operator" that the paper leaves as future work. To fade
    the past at each combine, max(γ m, m'), is not associative; the element must carry the amount w.
    With w = 0 the past does not fade.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Pair:
        """Return fade 0 and maximum -∞."""
        return jnp.zeros(self.shape), jnp.full(self.shape, -jnp.inf)

    @promoting
    def __call__(self, a: Pair, b: Pair) -> Pair:
        (a_fade, a_max), (b_fade, b_max) = a, b
        return a_fade + b_fade, jnp.maximum(a_max + b_fade, b_max)


class LogSumExp(Monoid):
    """`Affine` in the log domain: (w, m) • (w', m') = (w + w', log(exp(m + w') + exp(m')))."""

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Pair:
        """Return fade 0 and log-sum -∞."""
        return jnp.zeros(self.shape), jnp.full(self.shape, -jnp.inf)

    @promoting
    def __call__(self, a: Pair, b: Pair) -> Pair:
        (a_fade, a_log), (b_fade, b_log) = a, b
        faded = a_log + b_fade
        # JAX's derivative of log(0 + 0) is NaN; the result is the constant -∞, so the derivative is
        # 0.
        empty = jnp.maximum(faded, b_log) == -jnp.inf
        both = jnp.logaddexp(jnp.where(empty, 0, faded), jnp.where(empty, 0, b_log))
        return a_fade + b_fade, jnp.where(empty, -jnp.inf, both)


class LogAffine(Monoid):
    """Maps h ↦ e^w h + e^m X under composition, with logarithmic factors that cannot overflow.

    (w, m, X) • (w', m', X') = (w + w', M, e^{m + w' - M} X + e^{m' - M} X'), M = max(m + w', m').
    This is `Affine` with a scalar gain. M has no gradient, because it only divides the sum between
    e^m and X. Beck et al. 2024, Eqs. 15-17.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Scaled:
        """Return w = 0, m = -∞ and X = 0."""
        return jnp.zeros(()), jnp.full((), -jnp.inf), jnp.zeros(self.shape)

    @promoting
    def __call__(self, a: Scaled, b: Scaled) -> Scaled:
        (a_log, a_scale, a_sum), (b_log, b_scale, b_sum) = a, b
        faded = a_scale + b_log
        scale = jax.lax.stop_gradient(jnp.maximum(faded, b_scale))
        largest = jnp.where(scale == -jnp.inf, 0.0, scale)  # both are empty
        parts = jnp.exp(faded - largest) * a_sum, jnp.exp(b_scale - largest) * b_sum
        return a_log + b_log, scale, parts[0] + parts[1]


class Moments(Monoid):
    """Count, mean and squared deviation (n, μ, M₂) of a sample, which merge.

    Chan, Golub & LeVeque 1979, Eq. 2.1. f(x) = (1, x, 0); variance = M₂ / n. n may be any
    non-negative weight. A float32 n counts up to 2²⁴ samples of weight 1. Any weight that rounding
    drops from n is left out of μ and M₂ too, so the variance stays correct. `LongMoments` counts
    further.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Triple:
        """Return the moments of an empty sample: zeros."""
        zero = jnp.zeros(self.shape)
        return zero, zero, zero

    @promoting
    def __call__(self, a: Triple, b: Triple) -> Triple:
        (a_count, a_mean, a_square), (b_count, b_mean, b_square) = a, b
        count = a_count + b_count
        later = b_count > a_count
        added = jnp.where(later, b_count, count - a_count)  # the weight of b that n has room for
        part = added / jnp.where(b_count > 0, b_count, 1)
        share = added / jnp.where(count > 0, count, 1)
        step = b_mean - a_mean
        # Start from the mean of the larger sample: it stays exact if the other sample has no
        # weight.
        mean = jnp.where(later, b_mean - (1 - share) * step, a_mean + share * step)
        return count, mean, a_square + part * b_square + a_count * share * step * step


class LongMoments(Monoid):
    """`Moments` of up to 2⁴⁸ samples: (n, μ, M₂, n', μ', M₂').

    n', μ' and M₂' hold the digits that do not fit into n, μ and M₂: the count is n + n'. f(x) = (1,
    x, 0, 0, 0, 0); variance = M₂ / n.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Pairs:
        """Return the moments of an empty sample: zeros."""
        return (jnp.zeros(self.shape),) * 6

    @promoting
    def __call__(self, a: Pairs, b: Pairs) -> Pairs:
        a_count, a_mean, a_square = zip(a[:3], a[3:], strict=True)
        b_count, b_mean, b_square = zip(b[:3], b[3:], strict=True)
        count = _add(a_count, b_count)
        # The sum of a pair rounds to its first number, but passes a gradient to both.
        a_weight, b_weight, weight = (sum(pair) for pair in (a_count, b_count, count))
        later = b_weight > a_weight
        share = b_weight / jnp.where(weight > 0, weight, 1)
        step = (b_mean[0] - a_mean[0]) + (b_mean[1] - a_mean[1])
        larger = tuple(jnp.where(later, y, x) for x, y in zip(a_mean, b_mean, strict=True))
        mean = _add(larger, (jnp.where(later, share - 1, share) * step, 0))
        square = _add(_add(a_square, b_square), (a_weight * share * step * step, 0))
        return tuple(x for part in zip(count, mean, square, strict=True) for x in part)


def _add(a, b):
    """Return (x, x') + (y, y') as a pair of the same kind.  TwoSum, Knuth 1969."""
    total = a[0] + b[0]
    back = total - a[0]
    lost = (a[0] - (total - back)) + (b[0] - back) + (a[1] + b[1])
    rounded = total + lost
    return rounded, lost - (rounded - total)


class EWMA(Monoid):
    """A bias-corrected moving average.  Hilton et al. 2022, Appendix A.

    (β, w, m) • (β', w', m') = (β β', w̃ + w', (w̃ m + w' m') / (w̃ + w')), where w̃ = β' w and f(x)
    = (β, 1, x). The element stores a mean instead of a sum, so the average of a constant stays
    constant for any number of steps. β = 0 starts anew: it leaves no trace of the past.
    """

    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def identity(self) -> Triple:
        """Return decay 1 and weight 0."""
        return jnp.ones(self.shape), jnp.zeros(self.shape), jnp.zeros(self.shape)

    @promoting
    def __call__(self, a: Triple, b: Triple) -> Triple:
        (a_beta, a_weight, a_mean), (b_beta, b_weight, b_mean) = a, b
        faded = b_beta * a_weight
        weight = faded + b_weight
        share = b_weight / jnp.where(weight > 0, weight, 1)
        past = jnp.where(faded > 0, a_mean, b_mean)
        return a_beta * b_beta, weight, past + share * (b_mean - past)


class TopK(Monoid):
    """The k largest keys, with the data that they carry: a mergeable reservoir.

    Elements are (keys [k] in descending order, payload with leaves [k, ...]); an unused slot has
    key -∞ and payload zero. With keys drawn uniformly at random this is reservoir sampling (Vitter
    1985), which many actors may run separately and merge. Ties go to the earlier item. k ≥ 1.
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

    @promoting
    def __call__(self, a: Largest, b: Largest) -> Largest:
        both = jax.tree.map(lambda x, y: jnp.concatenate([x, y]), a, b)
        keys, chosen = jax.lax.top_k(both[0], self.k)
        return keys, jax.tree.map(lambda x: x[chosen], both[1])


class Window(Monoid):
    """The last k items of a sequence: frame stacking as a monoid.

    Elements are (items [k, ...] with the newest last, count ≤ k); unused items are zero. k ≥ 1.
    """

    k: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        _check_k(self.k)

    def identity(self) -> Items:
        """Return an empty window."""
        return jnp.zeros((self.k, *self.shape)), jnp.zeros(())

    @promoting
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
        raise ValueError(f"`k` must be at least 1 item; got {k}.")
