"""Collectives in the program of each agent's block, for four simulated devices.

    python -m tests.benchmarks.messages

One line per agent: bytes of its parameters, collectives, bytes of all their results on one device,
and of the largest. An operation inside a loop counts once, however often it runs. The sizes are
those of `tests/runs/test_devices.py`.
"""

from tests.helpers.devices import call
from tests.runs.test_devices import SIZES, compared

if __name__ == "__main__":
    for agent in SIZES:
        found = call(compared, agent)
        sizes = [size for _, size in found["sent"]]
        numbers = found["parameters"], len(sizes), sum(sizes), max(sizes)
        print(agent, *numbers, sep="\t", flush=True)
