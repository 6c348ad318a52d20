"""PPO with a linear recurrent unit, in one file: an agent that learns what to remember.

The cards of a deck are turned over one by one, and at every card the agent must name the suit of
three cards ago. A network without a memory can only guess; the highest score is 1. Run it with
`python ppo_lru.py`, or `python ppo_lru.py 3` for another seed.
"""

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

# Settings. An iteration plays 128 steps of 16 games, and passes 4 times through 4 minibatches.
GAMES, STEPS, EPOCHS, MINIBATCHES = 16, 128, 4, 4
BLOCKS, BLOCK, EPISODES = 16, 10, 32  # evaluations; iterations before each; episodes of each
ITERATIONS = BLOCKS * BLOCK
WIDTH, UNITS = 64, 64  # features of a layer, complex units of a memory
RATE, NORM = 1e-3, 0.5  # learning rate, which falls to 0; largest norm of a gradient
GAMMA, LAMBDA = 0.99, 0.95  # discount; decay of the advantages
CLIP, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.2, 0.05, 0.01

# The task. POPGym's RepeatPreviousEasy, as a gymnax environment. The agent sees one card at a
# time. A right answer pays 1/48 and a wrong one -1/48; the first three steps pay nothing. Another
# environment with discrete actions and a vector as observation can take its place.
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


# The network. An encoder, the memory, and two layers that see the memory's output next to the
# current input. `net(h, x, begin)` reads a tape. `net.ahead(h, x)` reads one more input from each
# state, because a tape does not contain the observation after the last step of an episode.
def layer(linear, x):
    return jax.nn.leaky_relu(jax.nn.standardize(dense(linear, x)))


class Net(eqx.Module):
    encoder: eqx.nn.Linear
    lru: LRU
    hidden: list
    head: eqx.nn.Linear

    def __init__(self, outputs, scale, key):
        keys = jax.random.split(key, 5)
        self.encoder = eqx.nn.Linear(OBS + 1, WIDTH, key=keys[0])
        self.lru = LRU(keys[1])
        sizes = (2 * WIDTH, WIDTH, keys[2]), (WIDTH, WIDTH, keys[3])
        self.hidden = [eqx.nn.Linear(n, m, key=key) for n, m, key in sizes]
        head = eqx.nn.Linear(WIDTH, outputs, key=keys[4])
        self.head = jax.tree.map(lambda x: scale * x, head)

    def __call__(self, h, x, begin):
        x = layer(self.encoder, x)
        h = scan(h, *self.lru.encode(x), begin[..., None])
        return h, self.decode(h, x)

    def ahead(self, h, x):
        x = layer(self.encoder, x)
        decay, new = self.lru.encode(x)
        return self.decode(decay * h + new, x)

    def decode(self, h, x):
        x = jnp.concatenate([self.lru.decode(h, x), x], axis=-1)
        return dense(self.head, layer(self.hidden[1], layer(self.hidden[0], x)))


# Acting. All games advance together. The memory forgets when it reads the flag `begin`, which is
# also a part of the input x. Each step stores where it led, also at the end of an episode: next_x.
ENV = RepeatPrevious()
Game = namedtuple("Game", "state obs begin h")  # h: the state of the policy's memory
Steps = namedtuple("Steps", "x begin action surprise reward next_x terminated last")
surprise = optax.softmax_cross_entropy_with_integer_labels  # -log π(a)


def start(key, count):
    obs, state = jax.vmap(ENV.reset)(jax.random.split(key, count))
    return Game(state, obs, jnp.ones(count, bool), jnp.zeros((count, UNITS), jnp.complex64))


def play(policy, game, key, count, greedy=False):
    def act(game, keys):
        x = jnp.column_stack([game.obs, game.begin])
        h, logits = (y[0] for y in policy(game.h, x[None], game.begin[None]))
        action = jnp.argmax(logits, -1) if greedy else jax.random.categorical(keys[0], logits)
        obs, state, reward, ended, cut, info = jax.vmap(ENV.step)(keys[1:], game.state, action)
        next_x = jnp.pad(info["final_observation"], ((0, 0), (0, 1)))
        new = x, game.begin, action, surprise(logits, action), reward, next_x, ended, ended | cut
        return Game(state, obs, ended | cut, h), Steps(*new)

    return jax.lax.scan(act, game, jax.random.split(key, (count, 1 + len(game.begin))))


# Advantages. Generalized advantage estimates (Schulman et al. 2016), A_t = δ_t + γ λ A_{t+1}, are
# the same scan, read from the end of the tape. Only a terminated episode has no value after it.
Batch = namedtuple("Batch", "x begin action surprise advantage target")


def prepare(critic, h, steps):
    hs, values = critic(h, steps.x, steps.begin)
    values, ahead = values[..., 0], critic.ahead(hs, steps.next_x)[..., 0]
    after = jnp.where(steps.last, ahead, jnp.concatenate([values[1:], ahead[-1:]]))
    discount = GAMMA * (1 - steps.terminated)
    tape = LAMBDA * discount, steps.reward + discount * after - values, steps.last
    raw = scan(jnp.zeros_like(values[0]), *(x[::-1] for x in tape))[::-1]
    return hs[-1], Batch(*steps[:4], (raw - raw.mean()) / (raw.std() + 1e-8), raw + values)


# Learning. The clipped objective of PPO (Schulman et al. 2017), an entropy bonus, and the squared
# error of the values. A minibatch has whole tapes of some games, replayed from the memories' states
# before them, because a tape that is cut loses its past.
OPTIMIZER = optax.chain(
    optax.clip_by_global_norm(NORM),
    optax.adam(lambda i: RATE * (1 - i // (EPOCHS * MINIBATCHES) / ITERATIONS)),
)


def loss(nets, h, batch):
    logits, values = (net(h, batch.x, batch.begin)[1] for net, h in zip(nets, h, strict=True))
    ratio = jnp.exp(batch.surprise - surprise(logits, batch.action))
    clipped = jnp.clip(ratio, 1 - CLIP, 1 + CLIP)
    objective = jnp.minimum(ratio * batch.advantage, clipped * batch.advantage)
    entropy = optax.softmax_cross_entropy(logits, jax.nn.softmax(logits))
    error = VALUE_WEIGHT * (values[..., 0] - batch.target) ** 2
    return jnp.mean(error - objective - ENTROPY_WEIGHT * entropy)


def update(nets, optimizer, h, batch):
    change, optimizer = OPTIMIZER.update(jax.grad(loss)(nets, h, batch), optimizer)
    return eqx.apply_updates(nets, change), optimizer


# The loop. Play, estimate, learn; after every tenth iteration, the best actions play 32 episodes.
Agent = namedtuple("Agent", "nets optimizer game h key")  # h: the state of the critic's memory


def iterate(agent, _):
    keys = jax.random.split(agent.key, 3)
    before = agent.game.h, agent.h
    game, steps = play(agent.nets[0], agent.game, keys[0], STEPS)
    h, batch = prepare(agent.nets[1], agent.h, steps)

    def learn(learner, rows):
        part = jax.tree.map(lambda x: x[:, rows], batch)
        return update(*learner, [h[rows] for h in before], part), None

    order = jnp.argsort(jax.random.uniform(keys[1], (EPOCHS, GAMES)))
    rows = order.reshape(EPOCHS * MINIBATCHES, -1)
    (nets, optimizer), _ = jax.lax.scan(learn, agent[:2], rows)
    return Agent(nets, optimizer, game, h, keys[2]), None


@jax.jit
def block(agent):
    agent, _ = jax.lax.scan(iterate, agent, None, BLOCK)
    keys = jax.random.split(agent.key, 3)
    _, steps = play(agent.nets[0], start(keys[0], EPISODES), keys[1], LONGEST, greedy=True)
    first = jnp.cumsum(steps.last, axis=0) - steps.last == 0  # steps of each game's first episode
    return agent._replace(key=keys[2]), jnp.sum(jnp.where(first, steps.reward, 0)) / EPISODES


@jax.jit
def init(key):
    keys = jax.random.split(key, 4)
    nets, game = (Net(ACTIONS, 0.01, keys[0]), Net(1, 1.0, keys[1])), start(keys[2], GAMES)
    return Agent(nets, OPTIMIZER.init(nets), game, game.h, keys[3])


def train(seed):
    agent = init(jax.random.key(seed))
    for i in range(BLOCK, ITERATIONS + 1, BLOCK):
        agent, score = block(agent)
        print(f"{i * GAMES * STEPS:>8,} steps, score {score:6.3f}", flush=True)
    return agent, float(score)


if __name__ == "__main__":
    train(int(sys.argv[1]) if sys.argv[1:] else 0)
