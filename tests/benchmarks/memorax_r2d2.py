"""memorax's R2D2, for bench_r2d2.py: runs in an environment of its own, without mmrl.

    python memorax_r2d2.py SETTINGS.json

Builds the agent, says so in a line {"parameters": …} and then, for every line that it reads, trains
on `steps` environment steps and answers {"cpu_seconds": …}. The network is put together from
memorax's parts so that it equals `mmrl.nets.Net` with an LSTM, layer by layer.
"""

import json
import pathlib
import sys
import time
from functools import partial

import flax.linen as nn
import gymnax
import jax
import jax.numpy as jnp
import optax
from gymnax.wrappers.compat import LegacyStepAPIWrapper
from memorax.algorithms import R2D2, R2D2Config
from memorax.buffers import get_full_start_flags, make_prioritised_episode_buffer
from memorax.networks import MLP, RNN, FeatureExtractor, Network, SequenceModel, heads

normalizer = partial(nn.LayerNorm, epsilon=1e-5, use_scale=False, use_bias=False)
Dense = partial(MLP, activation=nn.leaky_relu, normalizer=normalizer)


class Memory(SequenceModel):
    """The recurrence and its linear readout, beside what it read."""

    rnn: nn.Module
    width: int

    @nn.compact
    def __call__(self, inputs, mask, initial_carry=None, **kwargs):
        carry, h = self.rnn(inputs, mask, initial_carry)
        return carry, jnp.concatenate([nn.Dense(self.width)(h), inputs], axis=-1)

    @nn.nowrap
    def initialize_carry(self, key, input_shape):
        return self.rnn.initialize_carry(key, input_shape)


class Head(nn.Module):
    """Two hidden layers, then Q."""

    width: int
    actions: int

    @nn.compact
    def __call__(self, x, **kwargs):
        x = Dense(features=(self.width, self.width))(x)
        return heads.DiscreteQNetwork(action_dim=self.actions)(x)


def build(s: dict) -> R2D2:
    env, params = gymnax.make(s["env"])
    params = params.replace(**s["env_params"])
    window = s["burn_in"] + s["length"] + s["n_step"] - 1
    config = R2D2Config(
        name="r2d2",
        learning_rate=s["learning_rate"],
        num_envs=s["environments"],
        num_eval_envs=1,
        buffer_size=s["capacity"],
        gamma=s["gamma"],
        tau=1.0,
        target_network_frequency=100 * s["environments"],
        batch_size=s["batch"],
        start_e=0.1,
        end_e=0.1,
        exploration_fraction=1.0,
        learning_starts=0,
        train_frequency=s["steps_per_update"],
        burn_in_length=s["burn_in"],  # memorax counts it and the tail as part of the sequence
        sequence_length=window,
        n_step=s["n_step"],
        priority_exponent=s["alpha"],
    )
    buffer = make_prioritised_episode_buffer(
        max_length=s["capacity"],
        min_length=window,
        sample_batch_size=s["batch"],
        sample_sequence_length=window,
        get_start_flags=get_full_start_flags,
        add_sequences=True,
        add_batch_size=s["environments"],
        priority_exponent=s["alpha"],
        device=jax.default_backend(),
    )
    actions = env.action_space(params).n
    net = Network(
        feature_extractor=FeatureExtractor(Dense(features=(s["width"],))),
        torso=Memory(RNN(cell=nn.OptimizedLSTMCell(features=s["width"])), s["width"]),
        head=Head(s["width"], actions),
    )
    constant = optax.constant_schedule
    # gymnax 1.0 steps return six values, memorax reads five.
    env = LegacyStepAPIWrapper(env)
    adam = optax.chain(optax.clip_by_global_norm(40.0), optax.adam(s["learning_rate"]))
    return R2D2(config, env, params, net, adam, buffer, constant(0.1), constant(0.6))


def main() -> None:
    settings = json.loads(pathlib.Path(sys.argv[1]).read_text("utf-8"))
    agent = build(settings)
    key, state = agent.init(jax.random.key(0))
    key, state = agent.warmup(key, state, settings["warmup"])
    size = sum(x.size for x in jax.tree.leaves(state.params))
    print(json.dumps({"parameters": size}), flush=True)
    for _ in sys.stdin:
        began = time.process_time()
        key, state, transitions = agent.train(key, state, settings["steps"])
        jax.block_until_ready((state, transitions))
        print(json.dumps({"cpu_seconds": time.process_time() - began}), flush=True)


if __name__ == "__main__":
    main()
