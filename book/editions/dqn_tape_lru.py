"""Double DQN with a linear recurrent unit on a tape, in one file: an agent that learns to remember.

The cards of a deck are turned over, and at every card the agent must name the suit of three cards
ago. It learns from whole episodes on a tape (Morad et al. 2024). Run `python dqn_tape_lru.py`."""

import os
import sys
from collections import namedtuple

import jax

FLAG = " --xla_cpu_enable_concurrency_optimized_scheduler=false" * (jax.__version__[:4] == "0.10")
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "") + FLAG  # prevents a deadlock on a CPU
import equinox as eqx
import jax.numpy as jnp
import optax
from gymnax.environments.environment import Environment, EnvParams

# Settings. An iteration plays 16 steps of 16 games, and then takes 4 gradient steps on 500 steps.
# For whole episodes, BATCH must be at least LONGEST, and DEPTH at least twice LONGEST.
GAMES, STEPS, UPDATES, BATCH, DEPTH = 16, 16, 4, 500, 1024  # DEPTH: steps stored of each game
BLOCKS, BLOCK, EPISODES = 64, 10, 32  # evaluations; iterations before each; episodes of each
ITERATIONS, EXPLORE = BLOCKS * BLOCK, 80  # all; those in which the share of random actions falls
WIDTH, UNITS = 64, 64  # features of a layer, complex units of the memory
RATE, NORM, TAU = 3e-3, 1.0, 0.02  # learning rate; largest norm of a gradient; target's step
GAMMA, LAMBDA, SCALE = 0.98, 0.95, 8.0  # discount; decay of λ-returns; brings returns to 1-10

# The task. POPGym's RepeatPreviousEasy, as a gymnax environment: others can take its place. The
# agent sees one card at a time. After the first three steps, answers pay 1/48 if right, else -1/48.
OBS, ACTIONS, LONGEST = 4, 4, 51  # numbers of an observation, actions, steps of an episode
Cards = namedtuple("Cards", "time last left")  # the last four suits; cards of each suit in the deck


class RepeatPrevious(Environment):
    default_params = EnvParams(max_steps_in_episode=52)  # the deck ends first, after 51 steps

    def reset_env(self, key, params):
        seen = jax.nn.one_hot(jax.random.randint(key, (), 0, 4), 4)
        return seen, Cards(0, jnp.zeros((4, 4)).at[-1].set(seen), 13 - seen)

    def step_env(self, key, state, action, params):
        reward = jnp.where(state.last[0, action] == 1, 1 / 48, -1 / 48)
        seen = jax.nn.one_hot(jax.random.categorical(key, jnp.log(state.left)), 4)
        after = Cards(state.time + 1, jnp.vstack([state.last[1:], seen]), state.left - seen)
        return seen, after, jnp.where(state.time < 3, 0.0, reward), after.time >= 51, {}


# The monoid. The memory's state fades and receives an input, h ↦ a h + x. Two such maps in sequence
# are again such a map, and it makes no difference which neighbors are combined first. A flag marks
# the first step of an episode: there the identity, (1, 0), replaces the past.
def combine(past, new):
    (a, x, i), (b, y, j) = past, new
    a, x = jnp.where(j, 1, a), jnp.where(j, 0, x)
    return b * a, b * x + y, i | j


# The scan. It returns the state after every step of a tape, whose first axis is time. A CPU reads
# one step after another. Elsewhere a tree of combinations needs about 2 log₂ T rounds for T steps.
def scan(h, a, x, begin):
    first, rest = (jnp.ones_like(h), h, begin[0] & False), (jnp.broadcast_to(a, x.shape), x, begin)
    if jax.default_backend() == "cpu":
        return jax.lax.scan(lambda h, step: (combine(h, step),) * 2, first, rest)[1][1]
    steps = jax.tree.map(lambda one, more: jnp.concatenate([one[None], more]), first, rest)
    return jax.lax.associative_scan(combine, steps)[1][1:]


# The memory. A linear recurrent unit (Orvieto et al. 2023) decays by a complex number. Its modulus
# is the share that is left after a step, and its angle reveals how long ago an input came.
def dense(linear, x):
    return x @ linear.weight.T + linear.bias


class LRU(eqx.Module):
    nu: jax.Array
    theta: jax.Array
    read_in: jax.Array
    read_out: jax.Array
    skip: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 5)
        square = jax.random.uniform(keys[0], (UNITS,), minval=0.9**2, maxval=0.999**2)
        self.nu = jnp.log(-0.5 * jnp.log(square))
        self.theta = jnp.log(jax.random.uniform(keys[1], (UNITS,), minval=1e-4, maxval=6.28))
        self.read_in = jax.random.normal(keys[2], (2, UNITS, WIDTH)) / jnp.sqrt(2 * WIDTH)
        self.read_out = jax.random.normal(keys[3], (2, WIDTH, UNITS)) / jnp.sqrt(UNITS)
        self.skip = eqx.nn.Linear(WIDTH, WIDTH, key=keys[4])

    def encode(self, x):
        decay = jnp.exp(-jnp.exp(self.nu) + 1j * jnp.exp(self.theta))
        gain = jnp.sqrt(-jnp.expm1(-2 * jnp.exp(self.nu)))  # gives h the scale of x
        real, imag = gain[:, None] * self.read_in
        return decay, jax.lax.complex(x @ real.T, x @ imag.T)

    def decode(self, h, x):
        real, imag = self.read_out
        return h.real @ real.T - h.imag @ imag.T + dense(self.skip, x)


# The network. An encoder, the memory, and two layers that see both. It reads a tape, and after each
# state also next_x, because a tape lacks the observation after the last step of an episode.
def layer(linear, x):
    return jax.nn.leaky_relu(jax.nn.standardize(dense(linear, x)))


class Net(eqx.Module):
    encoder: eqx.nn.Linear
    lru: LRU
    hidden: list
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 5)
        self.encoder = eqx.nn.Linear(OBS + 1, WIDTH, key=keys[0])
        self.lru = LRU(keys[1])
        sizes = (2 * WIDTH, WIDTH, keys[2]), (WIDTH, WIDTH, keys[3])
        self.hidden = [eqx.nn.Linear(n, m, key=key) for n, m, key in sizes]
        self.head = eqx.nn.Linear(WIDTH, ACTIONS, key=keys[4])

    def __call__(self, h, x, begin, next_x):
        x, next_x = layer(self.encoder, x), layer(self.encoder, next_x)
        h = scan(h, *self.lru.encode(x), begin[..., None])
        decay, new = self.lru.encode(next_x)
        return h, self.decode(h, x), self.decode(decay * h + new, next_x)

    def decode(self, h, x):
        x = jnp.concatenate([self.lru.decode(h, x), x], axis=-1)
        return dense(self.head, layer(self.hidden[1], layer(self.hidden[0], x)))


# Acting. All games advance together. The memory forgets at age 0, the first step of an episode, a
# flag that is also a part of the input x. Each step stores next_x, where it led, even at an end.
ENV = RepeatPrevious()
Game = namedtuple("Game", "state obs age h")  # age: steps since the episode began
Steps = namedtuple("Steps", "x age action reward next_x terminated last")


def start(key, count):
    obs, state = jax.vmap(ENV.reset)(jax.random.split(key, count))
    return Game(state, obs, jnp.zeros(count, int), jnp.zeros((count, UNITS), jnp.complex64))


def play(net, game, key, count, epsilon):
    def act(game, keys):
        x = jnp.column_stack([game.obs, game.age == 0])
        h, q, _ = (y[0] for y in net(game.h, x[None], game.age[None] == 0, x[None]))
        explore, choice = jax.random.uniform(keys[0], (2, len(x)))
        action = jnp.where(explore < epsilon, jnp.int32(choice * ACTIONS), jnp.argmax(q, -1))
        obs, state, reward, ended, cut, info = jax.vmap(ENV.step)(keys[1:], game.state, action)
        next_x = jnp.pad(info["final_observation"], ((0, 0), (0, 1)))
        new = Steps(x, game.age, action, reward, next_x, ended, ended | cut)
        return Game(state, obs, jnp.where(new.last, 0, game.age + 1), h), new

    return jax.lax.scan(act, game, jax.random.split(key, (count, 1 + len(game.age))))


# The tape. A ring of steps for each game, and a table: the length of the whole episode that begins
# in a row, or 0. An episode leaves the table when its first step is overwritten.
Tape = namedtuple("Tape", "steps length cursor")


def add(tape, steps):
    game, time = jnp.arange(GAMES), jnp.arange(STEPS)[:, None]
    rows, whole = (tape.cursor + time) % DEPTH, steps.last & (steps.age + STEPS - time <= DEPTH)
    first = jnp.where(whole, (rows - steps.age) % DEPTH, DEPTH)
    length = tape.length.at[rows, game].set(0).at[first, game].set(steps.age + 1, mode="drop")
    stored = jax.tree.map(lambda ring, new: ring.at[rows, game].set(new), tape.steps, steps)
    return Tape(stored, length, (tape.cursor + STEPS) % DEPTH)


# A batch. Draw episodes without replacement and lay them end to end. Only the last one may be cut,
# at its end. Where the tape holds too few episodes to fill a batch, `mask` is False.
def sample(tape, key):
    length = tape.length.ravel()
    order = jnp.where(length > 0, jax.random.uniform(key, length.shape), -1)
    rows = jax.lax.top_k(order, BATCH)[1]
    end, at = jnp.cumsum(length[rows]), jnp.arange(BATCH)
    episode = jnp.searchsorted(end, at, side="right")
    row, offset = rows[episode], at - (end - length[rows])[episode]
    place = (row // GAMES + offset) % DEPTH, row % GAMES
    return jax.tree.map(lambda ring: ring[place], tape.steps), at < end[-1]


# The loss. Targets are λ-returns of double Q-learning, y_t = r_t + γ ((1 - λ) v_t + λ y_{t+1}): the
# same scan, read from the end of the tape. The loss is Huber's, averaged over real steps.
def loss(net, target, steps, mask):
    h, at, begin = jnp.zeros(UNITS, jnp.complex64), jnp.arange(BATCH), (steps.age == 0) | ~mask
    _, q, next_q = net(h, steps.x, begin, steps.next_x)
    v = target(h, steps.x, begin, steps.next_x)[2][at, jnp.argmax(next_q, axis=-1)]
    ends = steps.last | jnp.append(begin[1:], True)
    discount = GAMMA * (1 - steps.terminated)
    seen = SCALE * steps.reward + discount * jnp.where(ends, 1, 1 - LAMBDA) * v
    y = scan(jnp.float32(0), *(x[::-1] for x in (LAMBDA * discount, seen, ends)))[::-1]
    error = mask * optax.huber_loss(q[at, steps.action], jax.lax.stop_gradient(y))
    return jnp.sum(error) / jnp.maximum(jnp.sum(mask), 1)


# Learning. A step of Adam, after which the target network takes a small step towards the network.
OPTIMIZER = optax.chain(
    optax.clip_by_global_norm(NORM), optax.adam(lambda i: RATE * (1 - i // UPDATES / ITERATIONS))
)


def update(learner, batch):
    net, target, optimizer = learner
    change, optimizer = OPTIMIZER.update(jax.grad(loss)(net, target, *batch), optimizer)
    net = eqx.apply_updates(net, change)
    return (net, optax.incremental_update(net, target, TAU), optimizer), None


# The loop. Play, store, learn; after every tenth iteration, the greedy policy plays 32 episodes.
Agent = namedtuple("Agent", "net target optimizer game tape key iteration")


@jax.jit
def block(agent):
    def iterate(agent, _):
        keys = jax.random.split(agent.key, 2 + UPDATES)
        epsilon = jnp.maximum(0.5 - 0.45 * agent.iteration / EXPLORE, 0.05)  # of random actions
        game, steps = play(agent.net, agent.game, keys[0], STEPS, epsilon)
        tape = add(agent.tape, steps)
        learner, _ = jax.lax.scan(update, agent[:3], jax.vmap(sample, (None, 0))(tape, keys[2:]))
        return Agent(*learner, game, tape, keys[1], agent.iteration + 1), None

    agent, _ = jax.lax.scan(iterate, agent, None, BLOCK)
    keys = jax.random.split(agent.key, 3)
    _, steps = play(agent.net, start(keys[0], EPISODES), keys[1], LONGEST, 0.0)
    first = jnp.cumsum(steps.last, axis=0) - steps.last == 0  # steps of each game's first episode
    return agent._replace(key=keys[2]), jnp.sum(jnp.where(first, steps.reward, 0)) / EPISODES


@jax.jit
def init(key):
    keys = jax.random.split(key, 3)
    net, game = Net(keys[0]), start(keys[1], GAMES)
    _, steps = play(net, game, keys[2], DEPTH, 1.0)  # only the shapes are used
    empty = Tape(jax.tree.map(jnp.zeros_like, steps), jnp.zeros((DEPTH, GAMES), int), 0)
    return Agent(net, net, OPTIMIZER.init(net), game, empty, keys[2], 0)


def train(seed):
    agent = init(jax.random.key(seed))
    for i in range(BLOCK, ITERATIONS + 1, BLOCK):
        agent, score = block(agent)
        print(f"{i * GAMES * STEPS:>8,} steps, score {score:6.3f}", flush=True)
    return agent, float(score)


if __name__ == "__main__":
    train(int(sys.argv[1]) if sys.argv[1:] else 0)
