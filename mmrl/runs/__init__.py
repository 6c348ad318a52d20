"""Runs: training of several seeds in parallel, with checkpoints and results on disk.

    run = Run(Setup(env="popgym-RepeatFirstEasy-v0", seeds=(0, 1, 2)), path="runs/first")
    for report in run:                      # one report per block; you can break and iterate again
        print(report.block, report.returns.mean())
    run.state                               # networks, tapes and environments of all seeds
    run.best                                # best network of each seed so far, and its block
    log_reports(run, "csv", "tensorboard")  # yields the same reports; writes each to disk first

    Setup(env="popgym-RepeatFirstEasy-v0", agent="r2d2")  # default settings: `r2d2.Config()`

    sweep = Run(Setup("popgym-RepeatFirstEasy-v0", seeds=SEEDS, over={"gamma": (0.5, 0.9)}))
    list(sweep)
    sweep.verdict().winner.setting          # {"gamma": 0.5}

The folder of a run contains three files: `checkpoint` has the complete state after the last block,
`best` has the best networks, and `results.json` has the setup, the provenance and one row per block
as readable text. Each file is replaced atomically, so if the process is killed, only the current
block is lost. On the same machine and with the same versions, a resumed run is bitwise identical to
an uninterrupted one.

In addition, `log_reports` writes its logs to this folder, and `mmrl.runs.export` writes policies to
files that the caller names.
"""

from mmrl.runs.checkpoint import load, read, save
from mmrl.runs.identity import describe, restore
from mmrl.runs.processes import RunError, until_preempted
from mmrl.runs.programs import Program, program
from mmrl.runs.reopen import reopen, saved_setup, saved_sweep
from mmrl.runs.results import append, interquartile_mean, interval, provenance
from mmrl.runs.run import Report, Run, Sweep
from mmrl.runs.setup import OPTIONAL_INPUTS, PRECISIONS, SEEDS, Setup
from mmrl.runs.snapshot import Best, Snapshot
from mmrl.runs.sweep import Score, Verdict
from mmrl.runs.writers import log_reports

__all__ = [
    "OPTIONAL_INPUTS",
    "PRECISIONS",
    "SEEDS",
    "Best",
    "Program",
    "Report",
    "Run",
    "RunError",
    "Score",
    "Setup",
    "Snapshot",
    "Sweep",
    "Verdict",
    "append",
    "describe",
    "interquartile_mean",
    "interval",
    "load",
    "log_reports",
    "program",
    "provenance",
    "read",
    "reopen",
    "restore",
    "save",
    "saved_setup",
    "saved_sweep",
    "until_preempted",
]
