"""PPO with an LSTM against sb3-contrib's RecurrentPPO, on a CPU: environment steps per CPU-second.

    python tests/benchmarks/bench_sb3.py

PyTorch is not a dependency, so the benchmark installs sb3-contrib and popgym, with the CPU build of
PyTorch, into .cache/rivals/sb3, once (some 300 MB). SB3_PYTHON names another interpreter that has
them; with `--quick` nothing is installed, and the row is left out.

Equal on both sides: RepeatPreviousEasy (popgym's own environment there, ours here, which gives the
same numbers), 16 environments, 128 steps an iteration, 4 epochs of 4 minibatches, an LSTM of 64
units for the policy and one for the value, each with two hidden layers of 64, no evaluations. What
theirs does less: it has no encoder in front of its LSTM, so fewer parameters. What it does more: it
normalizes advantages in each minibatch. Its environments run in Python, one after another.

The limit at equal work: a step of ours takes 14 forward passes' worth of products (acting, the last
values, and 4 epochs of a forward and a backward pass), in networks with 100 thousand parameters:
2.8 million operations. At the 60 billion per CPU-second that such products reach here
(`bench_ppo.py`), that is 21 thousand steps, 17 times what sb3-contrib reached (1.2 thousand; ours
8.7 thousand, two EPYC cores, 2026-11-28). 50 times would take fewer products, not faster ones.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator

from bench_ppo import Ours, interleaved_medians
from rival import Rival, Theirs

from mmrl.course import plain
from mmrl.runs import program

TASK = "RepeatPreviousEasy"
TARGET = 50.0  # see the limit above
RIVAL = Rival(pathlib.Path(__file__).with_name("sb3_ppo.py"), "2.9.2")
PACKAGES = (f"sb3-contrib=={RIVAL.version}", "popgym==1.0.7", "torch")
FOLDER = pathlib.Path(__file__).parents[2] / ".cache" / "rivals" / "sb3"
CONFIG = dataclasses.replace(
    plain.PPO, memory="lstm", environments=16, rollout=128, epochs=4, minibatches=4
)


def new_interpreter() -> str:
    """Return the interpreter of a new environment that has the packages."""
    python, marker = FOLDER / "bin" / "python", FOLDER / "installed"
    if not marker.exists() or marker.read_text("utf-8") != " ".join(PACKAGES):
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "--clear", "--quiet", str(FOLDER)], check=True)
        install = [*uv, "pip", "install", "--quiet", "--python", str(python), *PACKAGES]
        if subprocess.run([*install, "--torch-backend", "cpu"]).returncode:
            # The index of CPU builds cannot be reached: any build of PyTorch runs on a CPU.
            subprocess.run(install, check=True)
        marker.write_text(" ".join(PACKAGES), "utf-8")
    return str(python)


def run(quick: bool = False) -> Iterator[dict]:
    """The row; of several rounds, the median counts."""
    if RIVAL.variable not in os.environ and not quick:
        os.environ[RIVAL.variable] = new_interpreter()
    if (python := RIVAL.python("PPO with an LSTM", __file__)) is None:
        return
    iterations, rounds = (1, 1) if quick else (4, 5)
    setup = program("ppo", f"popgym-{TASK}-v0")
    own = Ours(CONFIG, iterations, game=(setup.env, setup.params))
    theirs = Theirs(RIVAL, python, {**dataclasses.asdict(CONFIG), "env": TASK, "iterations": 1})
    try:
        result = interleaved_medians({"ours": own.round, "theirs": theirs.round}, rounds)
    finally:
        theirs.close()
    steps = CONFIG.environments * CONFIG.rollout
    sizes = f"{own.parameters} and {theirs.parameters} parameters"
    yield {
        "name": f"PPO, LSTM, {TASK}, {sizes}",
        "ours": iterations * steps / result["ours"],
        "peer": steps / result["theirs"],
        "ratio": iterations * result["theirs"] / result["ours"],
        "peer_name": "sb3-contrib's RecurrentPPO",
        "unit": "env steps per CPU-second",
        "target": TARGET,
    }


if __name__ == "__main__":
    for line in run():
        print(
            f"{line['name']}: {line['ours']:.0f} / {line['peer']:.0f} {line['unit']} = "
            f"{line['ratio']:.1f} × the rate of {line['peer_name']}  (target {line['target']:g})"
        )
