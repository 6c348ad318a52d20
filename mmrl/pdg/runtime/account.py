"""Which bytes are held, for whom and where: the account every interpreted program keeps.

A tensor's value at a point lives in *buffers*, each with a key that says which memory it is. Two
tensors may hold the same buffer (a merge copies nothing); its bytes then count once, for the tensor
that held it first, and pass to the next holder when that one lets go.
"""

import dataclasses
from collections import Counter
from collections.abc import Hashable, Iterable

import numpy as np

Tensor = tuple[str, int]
"""One output of an operation: (name, output)."""
Point = tuple[int, ...]
Buffer = tuple[Hashable, int]
"""A key for a piece of memory, and its size in bytes."""

DEVICE, HOST = "device", "host"


@dataclasses.dataclass
class _Held:
    size: int
    place: str
    holders: list[tuple[Tensor, Point]]


class Account:
    """Live bytes of each tensor after every event, on the device and on the host apart.

    `reserved` is the memory that stores have taken beforehand, whether or not it holds a value: a
    ring of n slots reserves n slots, and only those in use are live.
    """

    def __init__(self) -> None:
        self._held: dict[Hashable, _Held] = {}
        self._keys: dict[tuple[Tensor, Point, str], list[Hashable]] = {}
        self._live: Counter[tuple[Tensor | None, str]] = Counter()
        self._peak: Counter[tuple[Tensor | None, str]] = Counter()
        self._changes: list[tuple[int, Tensor, str, int]] = []
        self._reserved: Counter[str] = Counter()
        self._reserved_peak: Counter[str] = Counter()
        self.events: list[tuple] = []

    def hold(
        self, tensor: Tensor, point: Point, buffers: Iterable[Buffer], place: str = DEVICE
    ) -> None:
        """From now on the value of `tensor` at `point` is in these buffers."""
        keys = self._keys.setdefault((tensor, point, place), [])
        for key, size in buffers:
            keys.append(key)
            held = self._held.get(key)
            if held is None:
                self._held[key] = _Held(size, place, [(tensor, point)])
                self._change(tensor, place, size)
            else:
                held.holders.append((tensor, point))

    def drop(self, tensor: Tensor, point: Point, place: str = DEVICE) -> None:
        """The value of `tensor` at `point` is not needed any more: give back what only it held.

        Raises ValueError if it is not held there.
        """
        if (tensor, point, place) not in self._keys:
            raise ValueError(f"{tensor[0]}{list(point)} holds nothing on the {place} to free.")
        for key in self._keys.pop((tensor, point, place)):
            held = self._held[key]
            first = held.holders[0]
            held.holders.remove((tensor, point))
            if held.holders and held.holders[0][0] == first[0]:
                continue
            self._change(first[0], place, -held.size)
            if held.holders:
                self._change(held.holders[0][0], place, held.size)
            else:
                del self._held[key]

    def alone(self, tensor: Tensor, point: Point, place: str = DEVICE) -> bool:
        """Is nothing else in the memory of this value?"""
        keys = self._keys[tensor, point, place]
        return all(len(self._held[key].holders) == 1 for key in keys)

    def reserve(self, size: int, place: str = DEVICE) -> None:
        """A store takes `size` bytes beforehand, or gives them back if negative."""
        self._reserved[place] += size
        self._reserved_peak[place] = max(self._reserved_peak[place], self._reserved[place])

    def tick(self, event: tuple) -> None:
        """Everything held and dropped since the last call happened in `event`."""
        self.events.append(event)

    def _change(self, tensor: Tensor, place: str, size: int) -> None:
        self._changes.append((len(self.events), tensor, place, size))
        for key in ((tensor, place), (None, place)):
            self._live[key] += size
            self._peak[key] = max(self._peak[key], self._live[key])

    def live(self, tensor: Tensor | None = None, place: str = DEVICE) -> int:
        """Bytes held now, by one tensor or by all."""
        return self._live[tensor, place]

    def peak(self, tensor: Tensor | None = None, place: str = DEVICE) -> int:
        """The most bytes ever held at once, by one tensor or by all."""
        return self._peak[tensor, place]

    def reserved(self, place: str = DEVICE) -> int:
        """The most bytes that stores ever reserved at once."""
        return self._reserved_peak[place]

    def tensors(self) -> list[Tensor]:
        """Every tensor that ever held a byte, by first appearance."""
        return list(dict.fromkeys(tensor for _, tensor, _, _ in self._changes))

    def timeline(self, tensor: Tensor | None = None, place: str = DEVICE) -> np.ndarray:
        """Live bytes after each of `events`, of one tensor or of all."""
        steps = np.zeros(len(self.events) + 1, np.int64)
        for event, changed, where, size in self._changes:
            if where == place and tensor in (None, changed):
                steps[event] += size
        return np.cumsum(steps)[: len(self.events)]

    def leaks(self) -> list[tuple[Tensor, Point, str]]:
        """Tensors that are still held, and where."""
        return list(self._keys)
