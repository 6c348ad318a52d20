"""Each widget in a headless Chromium, driven by a keyboard and a mouse as by a reader."""

import sys
from pathlib import Path

import pytest

from tests.course.widgets.test_browser import CLASSES

sys.path.insert(0, str(Path(__file__).parents[2] / "browser"))
from chrome import Tab
from drive import drive
from page import page


@pytest.mark.full
def test_every_control_of_every_widget_changes_what_is_shown(tab: Tab, tmp_path: Path):
    path = tmp_path / "page.html"
    path.write_text(page([cls() for cls in CLASSES], "light", ""), "utf-8")
    tab.window(1280)
    tab.open(path.as_uri(), f'document.querySelectorAll(".mmrl").length >= {len(CLASSES)}')
    reports = drive(tab)
    assert len(reports) == len(CLASSES)
    assert [widget for widget in reports if widget.problems or not widget.controls] == []
