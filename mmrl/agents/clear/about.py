"""Labels, small settings for tests, and published settings of CLEAR."""

from typing import Any

from mmrl.agents.settings import Paper


def label(config: Any) -> tuple[str, str]:
    """Return a description and a folder name for runs with these settings."""
    share = f"{100 * config.replay_fraction:g}"
    if config.replay_fraction == 0:
        return f"{config.memory}, V-trace without replay", f"vtrace-{config.memory}"
    return f"{config.memory}, {share} % of each batch replayed", f"clear-{config.memory}-{share}"


SMALL: dict[str, Any] = {"shared": True, "capacity": 4096}

_CLEAR = Paper(
    "Rolnick et al. 2019, Experience replay for continual learning, and, where it refers to this "
    "paper, Espeholt et al. 2018, IMPALA",
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
        "The paper plays Atari and DMLab, whose images first go through a convolutional network. "
        "On DMLab an LSTM with 256 units follows (`--memory lstm --memory-sizes state_size 256`), "
        "and unrolls have 100 steps. There the learning rate, entropy weight and ε were drawn at "
        "random for each run, so the settings from Espeholt's table are those for Atari. Here "
        "images go through the network of MinAtar or of IMPALA, depending on their size; no "
        "score was measured with this preset on images.",
        "The replay fraction, one half, and the reservoir are from the runs on DMLab. On Atari "
        "the paper replays a quarter (`--replay-fraction 0.25`), with the network and settings of "
        "Schwarz et al. 2018, Progress & compress.",
        "The network receives only the observation, without a flag at the start of an episode.",
        "The paper clips rewards to ±1; here they are unchanged.",
        "The paper's actors use parameters that lag behind; ours use the current ones.",
        "The decay of RMSProp is not in the table; ours is from IMPALA's published code.",
        "The paper's reservoir of 450 million frames is half of the 900 million frames that it "
        "plays; here both numbers count steps, each of which may be several frames. Such a "
        "reservoir does not fit on any of our machines. Set `capacity` to half of the steps that "
        "you play, such as `--blocks 5 --block 63 --capacity 100000` for 200 000 steps.",
    ),
    (),
)

PAPERS = {"paper": _CLEAR}
