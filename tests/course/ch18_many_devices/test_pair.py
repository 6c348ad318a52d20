"""Two processes, of which one is killed: here small ones, which only write what a run writes."""

import re
from pathlib import Path

import pytest

from mmrl.course.ch18_many_devices import pair

TRAINS = """
import fcntl, json, os, pathlib, sys, time
path, process = (sys.argv[sys.argv.index(name) + 1] for name in ("--out", "--process"))
path = pathlib.Path(path)
path.mkdir(exist_ok=True)
held = (path / "held").open("w")  # by process 1, for as long as it lives
if process == "1":
    fcntl.flock(held, fcntl.LOCK_EX)
    (path / "here").touch()
    time.sleep(600)
while not (path / "here").exists():
    time.sleep(0.01)
for block in range(1, 4):
    (path / "results.partial").write_text(json.dumps({"history": [0] * block}))
    (path / "results.partial").replace(path / "results.json")
    print(block, flush=True)
fcntl.flock(held, fcntl.LOCK_EX)
colors, devices = ("FORCE_COLOR" in os.environ), os.environ["XLA_FLAGS"]
print(f"\\nIt is gone;\\nall end here. {colors} {devices}", flush=True)
"""


def test_one_is_killed_and_what_the_other_says_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # As in a notebook with four devices: each process has one, and nobody sees colors in a file.
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("XLA_FLAGS", "--one --xla_force_host_platform_device_count=4 --two")
    message = pair.kill_one(tmp_path / "run", ["Catch"], limit=600.0, program=["-c", TRAINS])
    assert re.fullmatch(
        r"Process 1 was killed after block [23]\. .* process 0: .*end here\. False --one --two",
        message,
    )
    assert pair.blocks(tmp_path / "run") == 3


@pytest.mark.parametrize(
    "script", ["print('No such thing.')", "raise SystemExit('No such thing.')"]
)
def test_a_pair_that_does_not_start_is_said(tmp_path: Path, script: str):
    message = pair.kill_one(tmp_path / "run", [], limit=600.0, program=["-c", script])
    assert message.startswith("No second block within 600 s.")
    assert message.endswith("process 0: No such thing.") and pair.blocks(tmp_path / "run") == 0
