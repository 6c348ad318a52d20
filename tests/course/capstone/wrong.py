"""Memories that are wrong, one way each; `right`, `latch` and `most` are not."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from mmrl.memory import Memory, Recurrent, SequenceModel
from mmrl.monoid import Affine, Max, Monoid, Sum


class Trace(Memory):
    """h_t = fade h_{t-1} + x_t: right where |fade| ≤ 1."""

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Monoid
    weight: Array
    fade: float = eqx.field(static=True, default=0.9)

    def encode(self, x):
        return jnp.full_like(x, self.fade), self.weight * x

    def decode(self, h, x):
        return h[1]


def trace(kind=Trace, fade=0.9):
    def build(input_size, output_size, *, key):
        return kind(input_size, output_size, Affine((input_size,)), jnp.ones(input_size), fade)

    return build


right = trace()
exploding = trace(fade=1.05)  # to infinity
growing = trace(fade=1.002)  # by 10⁸ in 10,000 steps


class Decay(Monoid):
    """a • b = 0.9 a + b, of which the brackets matter."""

    size: int = eqx.field(static=True)
    bend: float = 0.0

    def identity(self):
        return jnp.zeros(self.size)

    def __call__(self, a, b):
        return 0.9 * a + b


class Ones(Sum):
    """A sum whose identity is 1."""

    def identity(self):
        return jax.tree.map(jnp.ones_like, super().identity())


class Bend(Monoid):
    """a • b = a + b + p a b²: a sum, until p moves."""

    size: int = eqx.field(static=True)
    p: Array

    def identity(self):
        return jnp.zeros(self.size)

    def __call__(self, a, b):
        return a + b + self.p * a * b**2


class Accumulator(Memory):
    """h_t = h_{t-1} • x_t, of a monoid of vectors."""

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Monoid

    def encode(self, x):
        return x

    def decode(self, h, x):
        return h


def not_associative(input_size, output_size, *, key):
    return Accumulator(input_size, output_size, Decay(input_size))


def no_identity(input_size, output_size, *, key):
    return Accumulator(input_size, output_size, Ones(jnp.zeros(input_size)))


def bend(input_size, output_size, *, key):
    return Accumulator(input_size, output_size, Bend(input_size, jnp.zeros(())))


class Leaky(Recurrent):
    """h_t = keep(begin) h_{t-1} + x_t, where a begin should keep nothing."""

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    fraction: float = eqx.field(static=True)

    def init(self):
        return jnp.zeros(self.input_size)

    def cell(self, h, x):
        return 0.5 * h + x

    def read(self, h, x):
        return h

    def _reset_then_absorb(self, h, x, begin):
        return self.cell(h * jnp.where(begin, self.fraction, 1.0), x)


def product(input_size, output_size, *, key):
    return Leaky(input_size, output_size, 0.0)  # as Eq. 22 is printed


def half_kept(input_size, output_size, *, key):
    return Leaky(input_size, output_size, 0.5)


class Peeking(Trace):
    """Outputs less their mean over the tape."""

    def __call__(self, state, xs, begin, *, method="auto", axis=None):
        state, ys = Trace.__call__(self, state, xs, begin)
        return state, ys - ys.mean(0, keepdims=True)


peeking = trace(Peeking)


class Stepping(Trace):
    """A step whose output is another one."""

    def step(self, state, x, begin):
        state, y = Trace.step(self, state, x, begin)
        return state, 2 * y


stepping = trace(Stepping)


class Forgetful(Trace):
    """It looks ahead from an empty state."""

    def lookahead(self, state, xs, begin, next_xs, *, method="auto", axis=None):
        state, ys = self(state, xs, begin)
        return state, ys, self(self.init(), next_xs, begin | True)[1]


forgetful = trace(Forgetful)


class Carry(Trace):
    """A tape that begins anew whatever state it is given."""

    def __call__(self, state, xs, begin, *, method="auto", axis=None):
        return Trace.__call__(self, self.init(), xs, begin)


carry = trace(Carry)


class AheadLeaks(Trace):
    """It looks ahead as if no episode began."""

    def lookahead(self, state, xs, begin, next_xs, *, method="auto", axis=None):
        return Trace.lookahead(self, state, xs, jnp.zeros_like(begin), next_xs)


ahead_leaks = trace(AheadLeaks)


class AheadNow(Trace):
    """It looks ahead rightly, but what it says of the present is wrong."""

    def lookahead(self, state, xs, begin, next_xs, *, method="auto", axis=None):
        state, ys, next_ys = Trace.lookahead(self, state, xs, begin, next_xs)
        return state, -ys, next_ys


ahead_now = trace(AheadNow)


class Steps(Trace):
    """Single steps that reset by multiplication."""

    def step(self, state, x, begin):
        past = jax.tree.map(lambda h: h * jnp.where(begin, 0.0, 1.0), state)
        state = self.monoid(past, self.encode(x))
        return state, self.decode(state, x)


steps = trace(Steps)


class Double(Trace):
    """A tape whose state is twice that of single steps, before it and after it."""

    def __call__(self, state, xs, begin, *, method="auto", axis=None):
        half = jax.tree.map(lambda h: h / 2, state)
        state, ys = Trace.__call__(self, half, xs, begin)
        return jax.tree.map(lambda h: 2 * h, state), ys


double = trace(Double)


class Latest(Monoid):
    """The last four observations: right for one of them and for four or more, wrong between."""

    size: int = eqx.field(static=True)

    def identity(self):
        return jnp.zeros((4, self.size)), jnp.zeros(())

    def __call__(self, a, b):
        (x, n), (y, m) = a, b
        some = jnp.where(m == 0, x, jnp.concatenate([x[1:], y[-1:]]))
        return jnp.where(m >= 4, y, some), n + m


class Window(Memory):
    """The sum of the last four observations."""

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)
    monoid: Monoid

    def encode(self, x):
        return jnp.zeros((4, self.input_size)).at[-1].set(x), jnp.ones(())

    def decode(self, h, x):
        return h[0].sum(0)


def window(input_size, output_size, *, key):
    return Window(input_size, output_size, Latest(input_size))


def unready(input_size, output_size, *, key):
    """A memory that cannot look ahead."""

    class Unready(Trace):
        def lookahead(self, state, xs, begin, next_xs, *, method="auto", axis=None):
            raise NotImplementedError("later")

    return trace(Unready)(input_size, output_size, key=key)


def narrow(input_size, output_size, *, key):
    """A memory that can be built small only."""
    if input_size > 16:
        raise RuntimeError("too wide")
    return right(input_size, output_size, key=key)


# Two that are right, and whose gradients are zero for nearly all observations


class First(Monoid):
    """The first observation, and whether there was one."""

    size: int = eqx.field(static=True)

    def identity(self):
        return jnp.zeros(self.size), jnp.zeros((), bool)

    def __call__(self, a, b):
        return jnp.where(a[1], a[0], b[0]), a[1] | b[1]


class Latch(Trace):
    """Outputs the first observation for ever."""

    def encode(self, x):
        return self.weight * x, jnp.ones((), bool)

    def decode(self, h, x):
        return h[0]


def latch(input_size, output_size, *, key):
    return Latch(input_size, output_size, First(input_size), jnp.ones(input_size))


class Most(Trace):
    """Outputs the largest observation so far."""

    def encode(self, x):
        return 0 * x, self.weight * x

    def decode(self, h, x):
        return h[1]


def most(input_size, output_size, *, key):
    return Most(input_size, output_size, Max((input_size,)), jnp.ones(input_size))


class Tape(SequenceModel):
    """Every observation so far, and their mean: a state that grows."""

    input_size: int = eqx.field(static=True)
    output_size: int = eqx.field(static=True)

    def init(self):
        return jnp.zeros((0, self.input_size))

    def __call__(self, state, xs, begin, *, method="auto", axis=None):
        window = jnp.concatenate([state, xs])
        means = jnp.cumsum(window, 0) / (1 + jnp.arange(len(window)))[:, None]
        return window, means[len(state) :]

    def step(self, state, x, begin):
        state, ys = self(state, x[None], begin[None])
        return state, ys[0]

    def lookahead(self, state, xs, begin, next_xs, *, method="auto", axis=None):
        return *self(state, xs, begin), next_xs


def tape(input_size, output_size, *, key):
    return Tape(input_size, output_size)


class Constant(Trace):
    """A state that is carried and never read."""

    def decode(self, h, x):
        return x


constant = trace(Constant)


def hoarding(input_size, output_size, *, key):
    """A thousand traces, where fewer must do."""
    wide = jnp.ones((1000, input_size))
    return Trace(input_size, output_size, Affine((1000, input_size)), wide)


def without_key(input_size, output_size):
    return right(input_size, output_size, key=None)
