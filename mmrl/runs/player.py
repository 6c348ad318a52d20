"""Player for policies from `mmrl export`. This file needs only NumPy, so you can copy it.

policy = load("policy.npz")
state, begin, reward = policy.init(), True, 0.0
state, action = policy.step(state, obs, begin, reward)    # at each step of an episode
"""

import json

import numpy as np

FORMAT = "mmrl policy 2"
LATER = "mmrl policy 3"  # adds normalized observations, and vectors as previous actions
MASKS = "mmrl policy 4"  # adds masks of legal actions
MEMORIES = "mmrl policy 5"  # adds the memories gtrxl, lmu, mlstm, s6 and window
PICTURES = "mmrl policy 6"  # adds convolutions, whose input is an image of shape about["picture"]
FORMATS = FORMAT, LATER, MASKS, MEMORIES, PICTURES
BOUNDS = {"low": -np.inf, "high": np.inf}  # default bounds of a continuous action


class Policy:
    """Greedy policy. `about` describes its task, its training and its returns.

    `xp` is the array module that computes the outputs: NumPy, or one with the same functions.
    """

    def __init__(self, about: dict, arrays: dict, xp=np):
        self.about, self.arrays, self.xp = about, arrays, xp
        self.low, self.high = (arrays.get(name, bound) for name, bound in BOUNDS.items())

    def init(self) -> tuple:
        """Return the initial state, with an empty memory and no previous action."""
        return self.arrays["state"], None

    def step(self, state: tuple, obs: np.ndarray, begin: bool, reward: float = 0.0) -> tuple:
        """Return the next state and the greedy action.

        `obs` is the observation of the environment, an integer if it is discrete. If
        `about["masked"]` is True, `obs` must end with the mask of legal actions, which
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
        h, outputs = self.network(h, self.inputs(obs, action, reward, begin))
        if self.about.get("masked"):
            outputs = self._mask_illegal(outputs, obs)
        return (h, action), outputs

    def network(self, h, inputs) -> tuple:
        """Return the next memory state, and the outputs before illegal actions are masked.

        `inputs` is the result of the method `inputs`: the observation, followed by the additional
        inputs that `about["observes"]` lists.
        """
        x = self._layers("encoder", inputs)
        recurrence = {
            "gru": self._gru,
            "gtrxl": self._gtrxl,
            "lmu": self._lmu,
            "mlstm": self._mlstm,
            "s6": self._s6,
            "window": self._window,
        }.get(self.about["memory"], self._lru)
        h, y = recurrence(h, x)
        outputs = self._layers("head", self.xp.concatenate([y, x]))
        return h, self.xp.clip(outputs, self.low, self.high)

    def attention(self, h: np.ndarray, inputs: np.ndarray) -> np.ndarray:
        """Return the weights [slot, head] of the first attention layer; the last slot is this step.

        h is the memory state after this step. `about["memory"]` must be window or gtrxl.
        """
        x, part = self._layers("encoder", inputs), ""
        if self.about["memory"] == "gtrxl":
            h, part = h[0], "blocks.0."
            x = self._layer_norm(part + "norm", self._linear("blocks", x))
        return self._attention(h, x, part)

    def inputs(self, obs, action, reward: float, begin: bool) -> np.ndarray:
        """Return all inputs of a step, given the previous action and reward."""
        size = self.about["observation"]
        obs = np.eye(size)[obs] if np.ndim(obs) == 0 and size > 1 else np.ravel(obs)
        if obs.shape != (size,):
            raise ValueError(f"`obs` must have {size} elements; got {obs.size}.")
        one_hot = np.ndim(action) == 0
        before = np.arange(self.about["actions"]) == action if one_hot else action
        parts = {"previous_action": before}
        parts |= {"previous_reward": [0.0 if begin else reward], "begin_flag": [begin]}
        parts = [obs, *(parts[name] for name in self.about["observes"])]
        return np.concatenate(parts, dtype=np.float32)

    def _mask_illegal(self, outputs, obs) -> np.ndarray:
        legal = np.ravel(obs)[-len(outputs) :] > 0.5
        if not legal.any():
            raise ValueError("`obs` must end in a mask with a legal action; got zeros.")
        return np.where(legal, outputs, -np.inf)

    def _linear(self, name, x):
        return self.arrays[name + ".weight"] @ x + self.arrays[name + ".bias"]

    def _sigmoid(self, x):
        return 0.5 + 0.5 * self.xp.tanh(x / 2)

    def _normal(self, x):
        return (x - x.mean()) / self.xp.sqrt(x.var() + 1e-5) if x.size > 1 else x

    def _layers(self, part, x):
        xp = self.xp
        for i, kind in enumerate(self.about[part]):
            if kind == "normalized":
                center, scale, most = (
                    self.arrays[f"{part}.{i}.{name}"] for name in ("center", "scale", "most")
                )
                x = xp.clip((x - center) * scale, -most, most)
                continue
            if kind == "picture":
                x = self._picture(f"{part}.{i}", x)
                continue
            x = self._linear(f"{part}.{i}", x)
            if kind == "tanh":
                x = xp.tanh(x)
            elif kind == "dense":
                x = self._normal(x)
                x = xp.maximum(x, 0.01 * x)
        return x

    def _picture(self, name, x):
        """Return the features of an image, followed by the inputs besides the image."""
        xp, shape = self.xp, tuple(self.about["picture"])
        size = shape[0] * shape[1] * shape[2]
        image, rest = x[:size].reshape(shape), x[size:]
        if f"{name}.1.weight" not in self.arrays:
            image = self._filters(f"{name}.0", image, 0)
        else:
            for k in (0, 5, 10):  # the first filters of each block
                image = self._pool(self._filters(f"{name}.{k}", image))
                for n in (k + 1, k + 3):
                    y = xp.maximum(self._filters(f"{name}.{n}", xp.maximum(image, 0)), 0)
                    image = image + self._filters(f"{name}.{n + 1}", y)
        y = self._linear(name, xp.maximum(image, 0).ravel())
        return xp.concatenate([xp.maximum(y, 0), rest])

    def _filters(self, name, x, edge=1):  # a 3 × 3 convolution
        x = self.xp.pad(x, ((edge, edge), (edge, edge), (0, 0)))
        rows, columns = x.shape[0] - 2, x.shape[1] - 2
        patches = [x[i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
        patches = self.xp.concatenate(patches, axis=-1)
        return patches @ self.arrays[name + ".weight"].T + self.arrays[name + ".bias"]

    def _pool(self, x):  # the maximum of each 3 × 3 window, with stride 2
        xp, (rows, columns) = self.xp, [-(-n // 2) for n in x.shape[:2]]
        edges = [max(2 * m + 1 - n, 0) for m, n in ((rows, x.shape[0]), (columns, x.shape[1]))]
        pads = [(n // 2, n - n // 2) for n in edges]
        x = xp.pad(x, (*pads, (0, 0)), constant_values=-np.inf)
        windows = [
            x[i : i + 2 * rows - 1 : 2, j : j + 2 * columns - 1 : 2]
            for i in range(3)
            for j in range(3)
        ]
        return xp.stack(windows).max(0)

    # Each method below returns the next state of a memory, and a vector. The memory's output is a
    # linear function of this vector, which `mmrl export` has merged into the first layer of the
    # head.

    def _lru(self, h, x) -> tuple:  # also for policies without a memory: they have 0 units
        h = self.arrays["eigenvalues"] * h + self.arrays["read_in"] @ x
        return h, self.xp.stack([h.real, h.imag], axis=-1).ravel()

    def _gru(self, h, x) -> tuple:
        r, z, n = self.xp.split(self._linear("input", x), 3)  # gates and candidate
        of_r, of_z, of_n = self.xp.split(self._linear("recur", h), 3)
        r, z = self._sigmoid(r + of_r), self._sigmoid(z + of_z)
        n = self.xp.tanh(n + r * of_n)
        h = n + z * (h - n)
        return h, h

    def _lmu(self, h, x) -> tuple:  # h has one row of coefficients per channel
        u = self.arrays["read_in"] @ x
        # "held" is the transposed transition matrix, and "drive" the input vector.
        h = h @ self.arrays["held"] + u[:, None] * self.arrays["drive"][None]
        return h, h.ravel()

    def _s6(self, h, x) -> tuple:
        xp, arrays = self.xp, self.arrays
        u = arrays["read_in"] @ x
        step = xp.logaddexp(0.0, arrays["step_bias"] + arrays["step_gain"] @ u)
        into, out = xp.split(arrays["select"] @ u, 2)
        turn = step[:, None] * arrays["rate"]
        drive = xp.expm1(turn) / arrays["rate"] * (u[:, None] * into[None])
        h = xp.exp(turn) * h + drive
        return h, h @ out + arrays["skip"] * u

    def _mlstm(self, h, x) -> tuple:  # h consists of the log of a scale, and the table [C, n]
        xp = self.xp
        log_i, f = self._linear("gates", x)
        k = self._linear("key", x)
        v = xp.concatenate([self._linear("value", x), xp.ones(1, x.dtype)])
        past = h[0] - xp.logaddexp(0.0, -f)
        scale = xp.maximum(past, log_i)
        table = xp.exp(past - scale) * h[1:].reshape(len(v), len(k))
        table = table + xp.exp(log_i - scale) * (v[:, None] * k[None])
        sums = table @ self._linear("query", x)
        y = sums[:-1] / xp.maximum(abs(sums[-1]), xp.exp(-xp.maximum(scale, -80.0)))
        y = self._sigmoid(self._linear("output_gate", x)) * y
        return xp.concatenate([scale[None], table.ravel()]), y

    def _window(self, h, x, part="") -> tuple:
        h = self._append(h, x, part)
        values = self._items(h, part)[:, 1]
        return h, (self._attention(h, x, part)[:, :, None] * values).sum(0).ravel()

    def _append(self, h, x, part):
        # A row of h consists of a key, a value, and 1, or of zeros if the slot is empty.
        k, v = self.arrays[part + "key.weight"] @ x, self._linear(part + "value", x)
        row = self.xp.concatenate([k, v, self.xp.ones(1, x.dtype)])
        return self.xp.concatenate([h[1:], row[None]])

    def _items(self, h, part):
        window, heads, size = self.arrays[part + "relative"].shape
        return h[:, :-1].reshape(window, 2, heads, size)

    def _attention(self, h, x, part):
        xp, arrays = self.xp, self.arrays
        relative = arrays[part + "relative"]
        query = (arrays[part + "query.weight"] @ x).reshape(relative.shape[1:])
        logits = (query + arrays[part + "content_bias"])[None] * self._items(h, part)[:, 0]
        logits = logits + (query + arrays[part + "position_bias"])[None] * relative
        logits = logits.sum(2) / query.shape[1] ** 0.5
        logits = xp.where(h[:, -1:] > 0.5, logits, -xp.inf)
        weights = xp.exp(logits - logits.max(0, keepdims=True))
        return weights / weights.sum(0, keepdims=True)

    def _gtrxl(self, h, x) -> tuple:
        xp, windows = self.xp, []
        x = self._linear("blocks", x)
        for i in range(len(h)):
            part = f"blocks.{i}."
            window, y = self._window(h[i], self._layer_norm(part + "norm", x), part)
            x = self._gate(part + "gate", x, self._linear(part + "read_out", y))
            y = xp.maximum(self._linear(part + "up", self._layer_norm(part + "mlp_norm", x)), 0)
            x = self._gate(part + "mlp_gate", x, self._linear(part + "down", y))
            windows.append(window)
        return xp.stack(windows), x

    def _layer_norm(self, name, x):
        y = self._normal(x) * self.arrays[name + ".weight"] + self.arrays[name + ".bias"]
        return y if x.size > 1 else x

    def _gate(self, name, x, y):
        xp, arrays = self.xp, self.arrays
        y_r, y_z, y_n = xp.split(arrays[name + ".from_y"] @ xp.maximum(y, 0), 3)
        x_r, x_z = xp.split(arrays[name + ".from_x"] @ x, 2)
        z = self._sigmoid(y_z + x_z - arrays[name + ".bias"])
        n = xp.tanh(y_n + arrays[name + ".candidate"] @ (self._sigmoid(y_r + x_r) * x))
        return x + z * (n - x)


def load(path) -> Policy:
    """Load the policy in a file. Raises `ValueError` if the file is damaged or has no policy."""
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(str(arrays.pop("about")))
        if about["format"] not in FORMATS:
            raise ValueError
        policy = Policy(about, arrays)
        policy.step(policy.init(), np.ones(about["observation"]), True)
    except OSError:
        raise
    except Exception as error:  # a damaged zip file can raise almost any exception
        raise ValueError(f"{path} is damaged or was not written by `mmrl export`.") from error
    return policy
