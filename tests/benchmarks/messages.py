"""Collectives in the program of each agent's block, for four simulated devices.

    python -m tests.benchmarks.messages

One line per agent: bytes of its parameters, collectives, bytes of all their results on one device,
and of the largest. An operation inside a loop counts once, however often it runs. The sizes are
those of `tests/runs/test_devices.py`.
"""

from tests.helpers.devices import call
from tests.runs.test_devices import SIZES, comparison

if __name__ == "__main__":
    for agent in SIZES:
        measures = call(comparison, agent)
        sizes = [size for _, size in measures["sent"]]
        numbers = measures["parameters"], len(sizes), sum(sizes), max(sizes)
        print(agent, *numbers, sep="\t", flush=True)
