"""Names of CLEAR's runs, small sizes, and the settings of its paper and of IMPALA's."""

from typing import Any

from mmrl.agents.settings import Paper


def label(config: Any) -> tuple[str, str]:
    """Return what distinguishes this run from others, in words and as the name of a folder."""
    share = f"{100 * config.replay_fraction:g}"
    if config.replay_fraction == 0:
        return f"{config.memory}, V-trace without replay", f"vtrace-{config.memory}"
    return f"{config.memory}, {share} % of each batch replayed", f"clear-{config.memory}-{share}"


SMALL: dict[str, Any] = {"shared": True, "capacity": 4096}

_CLEAR = Paper(
    "Rolnick et al. 2019, Experience replay for continual learning, and where it refers to them "
    "Espeholt et al. 2018, IMPALA",
    {
        "Appendix A.4": {
            "policy_cloning": 0.01,
            "value_cloning": 0.005,
            "value_weight": 0.5,
            "entropy_weight": 0.005,
        },
        "Section 3": {"replay_fraction": 0.5},
        "Section 4.4": {"capacity": 450_000_000},
        "Section 4.4, of 900 million steps": {"block": 1_250, "blocks": 1_125},
        "Espeholt, Table G.1": {
            "rollout": 20,
            "environments": 32,
            "gamma": 0.99,
            "learning_rate": 6e-4,
            "anneal": 1.0,
            "rms_eps": 0.01,
            "max_grad_norm": 40.0,
        },
        "Espeholt, Table G.1, RMSProp": {"optimizer": "rmsprop"},
        "Espeholt, Table D.1": {"reduction": "sum"},
        "Espeholt, code (vtrace.py)": {"rho_max": 1.0, "c_max": 1.0},
        "Espeholt, Appendix G": {"memory": "none"},
        "Espeholt, Figure 3": {"shared": True, "width": 256},
    },
    (
        "The paper plays Atari and DMLab, whose images go through a convolutional network first, "
        "on DMLab to an LSTM of 256 (`--memory lstm --memory-sizes state_size 256`) with unrolls "
        "of 100 steps. There learning rate, entropy weight and ε were drawn at random for each "
        "run, so the rows of Espeholt's table are Atari's. Here pictures go through the network of "
        "MinAtar or of IMPALA, by their size; no score was measured with this preset on pictures.",
        "Half of replay and the reservoir are those of the runs on DMLab. On Atari the paper "
        "replays a quarter (`--replay-fraction 0.25`), with the network and settings of Schwarz et "
        "al. 2018, Progress & compress.",
        "The network is shown the observation alone, without a flag at the start of an episode.",
        "Rewards are cut to ±1 there, and here left as they are.",
        "Its actors act with parameters that lag behind; ours with today's.",
        "The decay of RMSProp is not in the table; ours is that of IMPALA's published code.",
        "Its reservoir of 450 million frames is half of the 900 million that it plays; here both "
        "count steps, each of which may be several frames. No machine of ours holds it: take half "
        "of the steps that you play, `--blocks 5 --block 63 --capacity 100000` for 200 000.",
    ),
    (),
)

PAPERS = {"paper": _CLEAR}
