"""The papers' settings: typed once more from the sources, accepted by their agents, and traced."""

import itertools

import jax
import pytest

from mmrl import runs
from mmrl.agents import AGENTS, find
from mmrl.agents.presets import PRESETS, Preset, find_preset
from mmrl.runs import Setup

ALL = [(agent, name) for agent, presets in PRESETS.items() for name in presets]

# What stands in the papers, in their own words and units.
HILTON = {  # Appendix B, Tables 1 to 4
    "workers": 4, "environments per worker": 64, "timesteps per rollout": 256,
    "minibatches per epoch": 8, "Adam step size": 5e-4, "value function coefficient": 0.5,
    "entropy coefficient": 0.01, "clipping": 0.2, "discount": 0.999, "GAE bootstrapping": 0.95,
    "PPO epochs": 3, "policy iterations": 32, "policy epochs": 1, "value epochs": 1,
    "auxiliary epochs": 6, "auxiliary minibatches per policy iteration": 16, "cloning": 1,
    "EWMA decay": 0.889, "environment steps": 100e6,
}  # fmt: skip
R2D2 = {  # Table 2 and Section 2.3
    "actors": 256, "update interval": 400, "m": 80, "l": 40, "overlap": 40, "n": 5,
    "replay": 4e6, "priority exponent": 0.9, "eta": 0.9, "importance exponent": 0.6,
    "discount": 0.997, "minibatch": 64, "Adam": (1e-4, 1e-3), "target interval": 2500,
    "rescaling": 1e-3, "LSTM": 512, "updates per second": 5, "steps per second": 260, "days": 5,
}  # fmt: skip
CLEAR = {  # Rolnick et al., Sections 3, 4.4 and A.4; Espeholt et al., Table G.1
    "policy cloning": 0.01, "value cloning": 0.005, "value": 0.5, "entropy": 0.005,
    "replayed": 0.5, "frames": 900e6, "unroll": 20, "batch": 32, "discount": 0.99,
    "learning rate": 0.0006, "epsilon": 0.01, "norm": 40,
}  # fmt: skip
TAPE = """
collect: epochs 5_000 eps_start 0.2 eps_end 0.01
train: batch_size 1_000 gamma 0.99 target_delay 200 lr_start 0.0001
train: gradient_scale 0.01 train_ratio 1
buffer: size 4_000_000
model: mlp_size 256 recurrent_size 256 d_hidden 128 n_layers 2
eval: interval 10 episodes 20
"""  # experiments/repeat_first_easy/tape_lru.yaml


@pytest.mark.parametrize(("agent", "name"), ALL)
def test_a_preset_is_accepted_and_can_begin(agent: str, name: str):
    preset, module = find_preset(agent, name), find(agent)
    setup = Setup("popgym-RepeatFirstEasy-v0", preset.config, agent=agent, observes=preset.observes)
    program = runs.program(agent, setup.env, setup.observes)
    module.check(setup.config, program.env, program.params)
    begin = jax.eval_shape(
        lambda key: module.init(setup.config, program.env, program.params, key), jax.random.key(0)
    )
    assert jax.tree.leaves(begin.net)
    assert runs.restore(runs.describe(setup)) == setup


@pytest.mark.parametrize(("agent", "name"), ALL)
def test_a_preset_says_where_its_settings_stand(agent: str, name: str):
    preset = PRESETS[agent][name]
    assert preset.source and preset.notes and {*preset.places} <= {*vars(preset.config)}
    assert {*preset.changes()} <= {*preset.places}  # nothing differs from ours without a source


def test_a_preset_does_without_what_is_ours():
    for agent in ("dqn", "r2d2"):
        config = PRESETS[agent]["paper"].config
        for name in ("anneal", "normalize_rewards", "normalize_observations", "lam"):
            assert not getattr(config, name, 0)


@pytest.mark.parametrize(("agent", "name"), ALL)
def test_preset_has_a_run_length_with_a_source(agent: str, name: str):
    assert {"block", "blocks"} <= {*PRESETS[agent][name].places}


def test_every_agent_has_the_papers_settings():
    assert PRESETS.keys() == AGENTS.keys() and all("paper" in each for each in PRESETS.values())


@pytest.mark.parametrize("agent", ["ppo", "ppg"])
def test_settings_of_hilton_et_al(agent: str):
    paper, c = HILTON, PRESETS[agent]["paper"].config
    assert c.environments == paper["workers"] * paper["environments per worker"]
    assert (c.rollout, c.minibatches) == (paper["timesteps per rollout"], 8)
    assert (c.learning_rate, c.value_weight) == (paper["Adam step size"], 0.5)
    assert (c.entropy_weight, c.clip) == (paper["entropy coefficient"], paper["clipping"])
    assert (c.gamma, c.lam) == (paper["discount"], paper["GAE bootstrapping"])
    assert c.normalize_rewards and c.normalize_advantages and c.proximal == "behavior"
    assert c.epochs == paper["PPO epochs" if agent == "ppo" else "policy epochs"]
    assert c.anneal == 0 and c.max_grad_norm == float("inf")  # the code has neither
    steps = c.block * c.blocks * c.rollout * c.environments
    assert paper["environment steps"] <= steps < 1.01 * paper["environment steps"]
    ewma = PRESETS[agent]["ewma"].config
    assert (ewma.block, ewma.blocks) == (c.block, c.blocks)
    assert ewma.proximal == "ewma"
    assert 1 - 1 / (1 + ewma.prox_center) == pytest.approx(paper["EWMA decay"], abs=5e-4)
    if agent == "ppg":
        assert c.policy_iterations == paper["policy iterations"]
        assert (c.value_epochs, c.auxiliary_epochs) == (1, paper["auxiliary epochs"])
        assert c.auxiliary_minibatches == 16 * c.policy_iterations
        assert (c.clone_weight, c.auxiliary_rate) == (paper["cloning"], paper["Adam step size"])


def test_settings_of_kapturowski_et_al():
    paper, (c, *_, observes) = R2D2, PRESETS["r2d2"]["paper"]
    assert (c.environments, c.length, c.overlap) == (paper["actors"], 80, paper["overlap"])
    assert (c.burn_in, c.n_step, c.start) == (paper["l"], paper["n"], "stored")
    assert c.capacity == pytest.approx(paper["replay"], rel=1e-3)
    assert (c.alpha, c.eta) == (paper["priority exponent"], paper["eta"])
    assert c.beta_start == c.beta_end == paper["importance exponent"]
    assert (c.gamma, c.batch) == (paper["discount"], paper["minibatch"])
    assert (c.learning_rate, c.adam_eps) == paper["Adam"]
    assert (c.target_period, c.rescale_eps) == (paper["target interval"], paper["rescaling"])
    assert (c.memory, dict(c.memory_sizes)["state_size"]) == ("lstm", paper["LSTM"])
    assert c.rollout / c.updates == paper["steps per second"] / paper["updates per second"]
    assert c.actor_period * c.rollout == pytest.approx(paper["update interval"], abs=c.rollout / 2)
    assert observes == ("previous_action", "previous_reward") and c.rescale and c.dueling
    seconds = 86_400 * paper["days"]  # at second hand, from Table 1 of MuZero's paper
    assert c.block * c.blocks * c.updates == paper["updates per second"] * seconds == 2_160_000


def test_settings_of_rolnick_et_al():
    paper, c = CLEAR, PRESETS["clear"]["paper"].config
    assert (c.policy_cloning, c.value_cloning) == (paper["policy cloning"], 0.005)
    assert (c.value_weight, c.entropy_weight) == (paper["value"], paper["entropy"])
    assert c.replay_fraction == paper["replayed"] and c.capacity == paper["frames"] / 2
    assert (c.rollout, c.environments) == (paper["unroll"], paper["batch"])
    assert c.block * c.blocks * c.rollout * c.environments == paper["frames"] == 2 * c.capacity
    assert (c.gamma, c.learning_rate) == (paper["discount"], paper["learning rate"])
    assert (c.rms_eps, c.max_grad_norm) == (paper["epsilon"], paper["norm"])
    assert (c.optimizer, c.reduction, c.shared) == ("rmsprop", "sum", True)
    assert c.rho_max == c.c_max == 1


def test_settings_of_morad_et_al():
    words = TAPE.replace(":", "").split()
    paper = {name: float(x) for name, x in itertools.pairwise(words) if x[0].isdigit()}
    c = PRESETS["dqn"]["paper"].config
    assert (c.batch, c.gamma, c.updates) == (1000, paper["gamma"], paper["train_ratio"])
    assert (c.learning_rate, c.max_grad_norm) == (paper["lr_start"], paper["gradient_scale"])
    assert 1 / c.tau == pytest.approx(paper["target_delay"]) and c.reward_scale == 1
    assert (c.epsilon_start, c.epsilon_end) == (paper["eps_start"], paper["eps_end"])
    assert c.epsilon_decay == c.block * c.blocks == paper["epochs"] and c.batching == "tape"
    assert (c.block, c.episodes, c.capacity) == (paper["interval"], 20, paper["size"])
    assert dict(c.memory_sizes) == {"layers": paper["n_layers"], "state_size": paper["d_hidden"]}
    assert c.width == paper["mlp_size"] and c.memory == "lru"


def test_an_unknown_preset_is_refused():
    with pytest.raises(ValueError, match="`preset` of ppo must be one of paper, ewma; got 'best'"):
        find_preset("ppo", "best")
    with pytest.raises(ValueError, match=r"`preset` of nobody must be omitted.*got 'paper'"):
        find_preset("nobody", "paper")
    assert isinstance(find_preset("ppo", "ewma"), Preset)
