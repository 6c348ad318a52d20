"""Train many seeds block by block: progress, checkpoints, exact resume, results with provenance.

The only module that touches the disk.

    run = Run(Setup(env="popgym-RepeatFirstEasy-v0", seeds=(0, 1, 2)), path="runs/first")
    for report in run:                  # one report per block; break to stop, iterate to go on
        print(report.block, report.returns.mean())
    run.state                           # every seed's networks, tape and environments
    run.best                            # each seed's best network so far, and its block
    logged(run, "csv", "tensorboard")   # the same reports, each after it was written

    Setup(env="popgym-RepeatFirstEasy-v0", agent="r2d2")  # its settings: `r2d2.Config`

    sweep = Sweep(Setup(env="popgym-RepeatFirstEasy-v0", seeds=SEEDS), {"gamma": (0.5, 0.9)})

In a run's folder, `checkpoint` holds everything after the last complete block, `best` the best
networks, and `results.json` the setup, the provenance and one row per block for people to read. All
are replaced whole, so a kill at any moment loses at most the block under way. A resumed run
computes bit for bit what an unbroken one would have, on the same machine and versions.
"""

from mmrl.runs.best import Best
from mmrl.runs.checkpoint import RunError, load, read, save
from mmrl.runs.hosts import until_preempted
from mmrl.runs.results import append, interquartile_mean, interval, provenance
from mmrl.runs.run import Run, program, reopen, saved
from mmrl.runs.setup import PRECISIONS, SHOWN, Setup, describe, restore
from mmrl.runs.sweep import SEEDS, Scored, Sweep, Verdict, saved_sweep
from mmrl.runs.training import Program, Report
from mmrl.runs.writers import logged

__all__ = [
    "PRECISIONS",
    "SEEDS",
    "SHOWN",
    "Best",
    "Program",
    "Report",
    "Run",
    "RunError",
    "Scored",
    "Setup",
    "Sweep",
    "Verdict",
    "append",
    "describe",
    "interquartile_mean",
    "interval",
    "load",
    "logged",
    "program",
    "provenance",
    "read",
    "reopen",
    "restore",
    "save",
    "saved",
    "saved_sweep",
    "until_preempted",
]
