"""Player for policies from `mmrl export`. This file needs only NumPy, so you can copy it.

policy = load("policy.npz")
state, begin, reward = policy.init(), True, 0.0
state, action = policy.step(state, obs, begin, reward)    # at each step of an episode
"""

import json

import numpy as np

FORMAT = "mmrl policy 2"
LATER = "mmrl policy 3"  # adds normalized observations, and vectors as previous actions
MASKED = "mmrl policy 4"  # adds masks of legal actions
ENDS = {"low": -np.inf, "high": np.inf}  # default bounds of a continuous action


class Policy:
    """Greedy policy. `about` describes its task, its training and its returns."""

    def __init__(self, about: dict, arrays: dict):
        self.about, self.arrays = about, arrays
        self.low, self.high = (arrays.get(name, end) for name, end in ENDS.items())

    def init(self) -> tuple:
        """Return the initial state, with an empty memory and no previous action."""
        return self.arrays["state"], None

    def step(self, state: tuple, obs: np.ndarray, begin: bool, reward: float = 0.0) -> tuple:
        """Return the next state and the greedy action.

        `obs` is the observation of the environment, an integer if it is discrete. If
        `about["masked"]` is True, it must end with the mask of legal actions, which
        `mmrl.envs.wrappers.ActionMask` appends. `begin` is True at the first step of an episode,
        and `reward` is the reward of the previous step.

        The action is an integer, or a vector if actions are continuous. Raises `ValueError` if
        `obs` has the wrong size, or if no action is legal.
        """
        (h, _), outputs = self.outputs(state, obs, begin, reward)
        action = self.greedy(outputs)
        return (h, action), action

    def greedy(self, outputs: np.ndarray) -> int | np.ndarray:
        """Return the greedy action for `outputs`."""
        return outputs if self.about["continuous"] else int(np.argmax(outputs))

    def outputs(self, state: tuple, obs: np.ndarray, begin: bool, reward: float = 0.0) -> tuple:
        """Return the next state, and the outputs: Q(s, ·), logits, or the mean action.

        The mean action is clipped to the bounds of the action space. The outputs of illegal actions
        are -∞.
        """
        h, action = self.init() if begin else state
        x = self._layers("encoder", self._shown(obs, action, 0.0 if begin else reward, begin))
        h = self._remember(h, x)
        outputs = self._layers("head", np.concatenate([h.view(np.float32), x]))
        outputs = np.clip(outputs, self.low, self.high)
        return (h, action), self._legal(outputs, obs) if self.about.get("masked") else outputs

    def _legal(self, outputs, obs) -> np.ndarray:
        legal = np.ravel(obs)[-len(outputs) :] > 0.5
        if not legal.any():
            raise ValueError("`obs` must end in a mask with a legal action; got zeros.")
        return np.where(legal, outputs, -np.inf)

    def _shown(self, obs, action, reward, begin) -> np.ndarray:
        size = self.about["observation"]
        obs = np.eye(size)[obs] if np.ndim(obs) == 0 and size > 1 else np.ravel(obs)
        if obs.shape != (size,):
            raise ValueError(f"`obs` must have {size} elements; got {obs.size}.")
        one_hot = np.ndim(action) == 0
        before = np.arange(self.about["actions"]) == action if one_hot else action
        parts = {"previous_action": before}
        parts |= {"previous_reward": [reward], "begin_flag": [begin]}
        parts = [obs, *(parts[name] for name in self.about["observes"])]
        return np.concatenate(parts, dtype=np.float32)

    def _linear(self, name, x) -> np.ndarray:
        return self.arrays[name + ".weight"] @ x + self.arrays[name + ".bias"]

    def _layers(self, part, x) -> np.ndarray:
        for i, kind in enumerate(self.about[part]):
            if kind == "normalized":
                center, scale, most = (
                    self.arrays[f"{part}.{i}.{name}"] for name in ("center", "scale", "most")
                )
                x = np.clip((x - center) * scale, -most, most)
                continue
            x = self._linear(f"{part}.{i}", x)
            if kind == "tanh":
                x = np.tanh(x)
            elif kind == "dense":
                x = (x - x.mean()) / np.sqrt(x.var() + 1e-5)
                x = np.maximum(x, 0.01 * x)
        return x

    def _remember(self, h, x) -> np.ndarray:
        if "eigenvalues" in self.arrays:  # an LRU, which has no units if the policy has no memory
            return self.arrays["eigenvalues"] * h + self.arrays["read_in"] @ x
        r, z, n = np.split(self._linear("input", x), 3)  # gates and candidate of a GRU
        of_r, of_z, of_n = np.split(self._linear("recur", h), 3)
        r, z = 0.5 + 0.5 * np.tanh((r + of_r) / 2), 0.5 + 0.5 * np.tanh((z + of_z) / 2)
        n = np.tanh(n + r * of_n)
        return n + z * (h - n)


def load(path) -> Policy:
    """Load the policy in a file. Raises `ValueError` if the file is damaged or has no policy."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about")))
        if about["format"] not in (FORMAT, LATER, MASKED):
            raise ValueError
        policy = Policy(about, arrays)
        policy.step(policy.init(), np.ones(about["observation"]), True)
    except OSError:
        raise
    except Exception as error:  # a damaged zip file can raise almost any exception
        raise ValueError(f"{path} is damaged or was not written by `mmrl export`.") from error
    return policy
