"""POPGym's tasks as pictures: they show what the observation shows, and nothing else changes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mmrl import envs
from mmrl.agents import find
from mmrl.agents.checks import seen_picture
from mmrl.envs import popgym, wrappers
from mmrl.envs.popgym import pixels

TASKS = [name for name in popgym.SPECS if "RepeatPrevious" in name or "Concentration" in name]


@pytest.mark.parametrize("name", TASKS)
def test_pictures_are_small_bytes_in_their_space(name: str):
    env, params = envs.make(name, observe="pixels")
    space = env.observation_space(params)
    obs = jax.eval_shape(env.reset, jax.random.key(0), params)[0]
    assert (obs.shape, obs.dtype) == (space.shape, jnp.uint8) and max(space.shape[:2]) <= 84
    assert seen_picture(find("dqn").Config(), env, params).unit == 255


@pytest.mark.parametrize("name", ["popgym-RepeatPreviousEasy-v0", "popgym-ConcentrationHard-v0"])
def test_a_picture_shows_as_much_as_the_observation(name: str):
    """Rewards and ends are equal, and equal pictures are those of equal observations."""
    (plain, params), (drawing, _) = envs.make(name), envs.make(name, observe="pixels")

    @jax.jit
    def play(key):
        def step(states, key):
            action = jax.random.randint(key, (), 0, plain.num_actions)
            both = [
                e.step(key, s, action, params)
                for e, s in zip((plain, drawing), states, strict=True)
            ]
            return tuple(x[1] for x in both), [(x[0], *x[2:5]) for x in both]

        states = tuple(e.reset(key, params)[1] for e in (plain, drawing))
        return jax.lax.scan(step, states, jax.random.split(key, 150))[1]

    (obs, *rest), (pictures, *others) = jax.device_get(play(jax.random.key(0)))
    for a, b in zip(rest, others, strict=True):
        np.testing.assert_array_equal(a, b)
    codes = [np.unique(x.reshape(150, -1), axis=0, return_inverse=True)[1] for x in (obs, pictures)]
    pairs = {(int(a), int(b)) for a, b in zip(*codes, strict=True)}
    assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs}) > 3


def test_every_kind_of_card_looks_different():
    for cards in (pixels.suits(), pixels.faces(2), pixels.faces(13)):
        assert len(np.unique(cards.reshape(len(cards), -1), axis=0)) == len(cards)
    kinds = jnp.arange(6) % 3
    table = np.asarray(pixels.table(kinds, pixels.faces(2), columns=3))
    for place, kind in enumerate([0, 1, 2, 0, 1, 2]):
        row, column = divmod(place, 3)
        card = table[6 * row + 1 : 6 * row + 6, 6 * column + 1 : 6 * column + 6]
        np.testing.assert_array_equal(card, pixels.faces(2)[kind])


def test_a_task_without_pictures_is_refused():
    with pytest.raises(ValueError, match="`env` must have a method `pixels"):
        envs.make("popgym-AutoencodeEasy-v0", observe="pixels")
    with pytest.raises(ValueError, match="`env` must have a method `pixels"):
        wrappers.PixelObservation(envs.make("CartPole-v1")[0])
