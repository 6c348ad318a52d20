"""Replay buffers: fixed-size pytrees with pure functions `init`, `add` and `sample`.

For example, episodes of `probe-Memory-v0` have five steps, so a batch of ten steps that is sampled
from a `tape` consists of two episodes:

    >>> import jax
    >>> from mmrl import envs, rollout
    >>> from mmrl.replay import tape
    >>> env, params = envs.make("probe-Memory-v0")
    >>> carry = rollout.start(env, params, (), jax.random.key(0))
    >>> policy = lambda state, obs, begin, key: (state, 0)
    >>> _, steps = rollout.collect(policy, env, params, carry, jax.random.key(1), steps=20)

    >>> storage = tape.init(jax.tree.map(lambda x: x[0], steps), capacity=64)
    >>> storage = tape.add(storage, jax.tree.map(lambda x: x[None], steps))  # [worker, time, ...]
    >>> batch = tape.sample(storage, jax.random.key(2), batch=10)
    >>> batch.steps.obs.shape, batch.begin.sum()
    ((10, 3), Array(2, dtype=int32))
"""
