"""DeepSea of bsuite, as gymnax has it, with the `step` that all environments share."""

from mmrl.envs._gymnax import environment, gymnax


class DeepSea(gymnax.environments.bsuite.DeepSea):
    """A grid to cross by one action per row: the hard exploration task of bsuite.

    gymnax's own `step` differs only in two counters of its state, `total_bad_episodes` and
    `denoised_return`, which it carries across episodes. Here they count one episode. Observations,
    rewards and ends are equal.
    """

    step = environment.Environment.step
