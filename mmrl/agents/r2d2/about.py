"""Labels, small settings for tests, and published settings of R2D2."""

from typing import Any

from mmrl.agents.settings import Paper


def label(config: Any) -> tuple[str, str]:
    """Return a description and a folder name for runs with these settings."""
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
        "Schrittwieser et al. 2020, Table 1 (quoted)": {"block": 2160, "blocks": 1000},
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
        "DQN first; here images go through the network of MinAtar or of IMPALA, depending on their "
        "size. No score was measured with this preset on images.",
        "In the paper, actors and learner run in parallel. Here they take turns: an actor makes 52 "
        "steps for each gradient step, which corresponds to the paper's 260 steps and 5 gradient "
        "steps per second. An actor gets new parameters every 8 gradient steps, that is, every 416 "
        "of its steps instead of 400.",
        "The length of a run comes from a secondary source, which quotes 2.16 million gradient "
        "steps (five days at 5 per second) from Table 1 of the MuZero paper; we did not check that "
        "paper. We chose to evaluate every 2160 gradient steps.",
        "Each actor's part of the storage consists of complete periods of 40 steps, so the total "
        "capacity is 4 003 840 steps.",
        "R2D2 adopts Ape-X's settings where its own table has none. Ape-X uses a squared error "
        "instead of our Huber loss, and starts to learn only after 50 000 steps.",
        "On a smaller machine: `--environments 16 --capacity 64000 --batch 32 --width 64 "
        "--memory-sizes state_size 64 --rollout 16`, and, since runs are shorter, "
        "`--block 10 --blocks 64 --target-period 100 --learning-rate 1e-3 --adam-eps 1e-5`.",
    ),
    ("previous_action", "previous_reward"),
)

PAPERS = {"paper": _R2D2}
