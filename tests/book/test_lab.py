"""Widgets in JupyterLab, which wants the arrow keys for itself: one of each kind of control.

All others are driven on the pages of the site, see `test_site.py`.
"""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "browser"))
from chrome import Tab
from drive import SCRIPT, drive
from lab import jupyter_lab, run_all

NAMES = ("ScanPlayer", "ResetExplorer")
KINDS = {"range", "radio", "checkbox", "BUTTON", "g"}


@pytest.mark.full
def test_every_kind_of_control_answers_in_jupyterlab(
    tmp_path: Path, tab: Tab, capsys: pytest.CaptureFixture
):
    # To import it takes longer than most tests.
    from nbformat import write
    from nbformat.v4 import new_code_cell, new_notebook

    cells = ["from mmrl.course.widgets import *", *(f"{name}()" for name in NAMES)]
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    notebook = new_notebook(cells=[new_code_cell(cell) for cell in cells], metadata=kernel)
    write(notebook, tmp_path / "all.ipynb")
    with jupyter_lab(tmp_path) as address:
        tab.window(1280)
        run_all(tab, address, "all.ipynb")
        ready = '[...document.querySelectorAll(".mmrl")].filter(n => n.querySelector("svg"))'
        tab.wait(f"{ready}.length >= {len(NAMES)}")
        cell = (
            "[...document.querySelectorAll('.jp-Cell')].findIndex(n => n.matches('.jp-mod-active'))"
        )
        active = tab.run(cell)
        tab.run(SCRIPT + "null")
        lists = [tab.run(f"mm.list({i})") for i in range(len(NAMES))]
        assert {kind for each in lists for kind, _ in each} == KINDS
        result = drive(tab)
        with capsys.disabled():
            print("", *result, sep="\n  ")
        assert len(result) == len(NAMES)
        for widget in result:
            assert widget.controls and not widget.problems, widget
        # A click selects the cell of its widget; no arrow may leave it.
        assert tab.run(cell) in (active, len(NAMES)), "a key went to JupyterLab"
