"""Names of R2D2's runs, small sizes, and the settings of its paper."""

from typing import Any

from mmrl.agents.settings import Paper


def label(config: Any) -> tuple[str, str]:
    """Return what distinguishes this run from others, in words and as the name of a folder."""
    words = f"{config.memory}, {config.start} state, burn-in {config.burn_in}"
    return words, f"r2d2-{config.memory}-{config.start}"


SMALL: dict[str, Any] = dict(
    environments=8,
    length=4,
    overlap=2,
    burn_in=2,
    n_step=2,
    batch=64,
    updates=8,
    capacity=1024,
    target_period=8,
    block=8,
)

_R2D2 = Paper(
    "Kapturowski et al. 2019, Recurrent experience replay in distributed reinforcement learning",
    {
        "Table 2": {
            "environments": 256,
            "length": 80,
            "burn_in": 40,
            "alpha": 0.9,
            "beta_start": 0.6,
            "beta_end": 0.6,
            "gamma": 0.997,
            "batch": 64,
            "learning_rate": 1e-4,
            "adam_eps": 1e-3,
            "target_period": 2500,
            "rescale": True,
            "rescale_eps": 1e-3,
        },
        "Table 2, 4 million": {"capacity": 4_003_840},
        "Table 2, of 400 steps": {"actor_period": 8},
        "Section 2.3": {"n_step": 5, "overlap": 40, "eta": 0.9},
        "Section 2.3, of 260 steps in 1/5 s": {"rollout": 52, "updates": 1},
        "Schrittwieser et al. 2020, Table 1, at second hand": {"block": 2160, "blocks": 1000},
        "Section 3": {"start": "stored"},
        "Appendix": {
            "memory": "lstm",
            "memory_sizes": (("state_size", 512),),
            "width": 512,
            "dueling": True,
        },
        "Horgan et al. 2018, as the paper has it": {
            "epsilon_base": 0.4,
            "epsilon_exponent": 7.0,
            "max_grad_norm": 40.0,
        },
    },
    (
        "The paper plays Atari and DMLab, whose images go through the convolutional network of "
        "DQN first; here pictures go through that of MinAtar or of IMPALA, by their size. No score "
        "was measured with this preset on pictures.",
        "Its actors and its learner run side by side. Here they take turns: an actor makes 52 "
        "steps for each gradient step, as 260 steps and 5 gradient steps in a second come to, and "
        "gets new parameters every 8 gradient steps, which are 416 of its steps, not 400.",
        "The length of a run is at second hand: 2.16 million gradient steps, five days at 5 a "
        "second, are quoted from the MuZero paper without a look at it. An evaluation after every "
        "2160 is ours.",
        "Each actor's part of the storage is whole periods of 40 steps, so it is 4 003 840 in all.",
        "Ape-X, of which R2D2 takes over what its table does not name, has a squared error, where "
        "ours is Huber's, and waits for 50 000 steps before it learns.",
        "On a smaller machine: `--environments 16 --capacity 64000 --batch 32 --width 64 "
        "--memory-sizes state_size 64 --rollout 16`, and, since runs are shorter, "
        "`--block 10 --blocks 64 --target-period 100 --learning-rate 1e-3 --adam-eps 1e-5`.",
    ),
    ("previous_action", "previous_reward"),
)

PAPERS = {"paper": _R2D2}
