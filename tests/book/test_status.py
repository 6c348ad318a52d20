"""The page that lists the runs of the notebooks."""

import sys
from pathlib import Path
from typing import Any

import nbformat
import nbformat.v4 as v4
import pytest
from bs4 import BeautifulSoup

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "book" / "tools"))
import execute  # noqa: E402
import status  # noqa: E402

ORIGIN = {"device": "cpu, 2 CPU cores", "python": "3.11.7", "versions": {"jax": "1.0"}}


def example(*stamps: str, origin: dict[str, Any]) -> nbformat.NotebookNode:
    """Return a run whose code cells finished at these times."""
    cells = [
        v4.new_code_cell("1", metadata={"execution": {"shell.execute_reply": stamp}})
        for stamp in stamps
    ]
    cells.insert(1, v4.new_markdown_cell("Text"))
    return v4.new_notebook(cells=cells, metadata={"provenance": origin})


def test_a_run_has_its_date_its_seconds_and_its_origin():
    stamps = ("2026-01-02T23:59:40.5Z", "2026-01-03T00:01:00Z", "2026-01-03T00:02:10.5Z")
    row = status.summary("a", "A", example(*stamps, origin=ORIGIN))
    assert row[2:] == ("2026-01-02 23:59", "150", "cpu, 2 CPU cores", "Python 3.11.7, jax 1.0")
    earlier = status.summary("a", "A", example(stamps[0], origin={}))
    assert earlier[2:] == ("2026-01-02 23:59", "0", status.NO_RECORD, status.NO_RECORD)
    assert set(status.summary("a", "A", None)[2:]) == {status.NO_RECORD}


def test_the_table_has_a_row_per_notebook_and_each_set_of_versions_once():
    run = status.Run("02_a", "02 · A < B", "2026-01-02 03:04", "9", "cpu", "jax 1.0")
    soup = BeautifulSoup(status.table([run, run._replace(name="03_b")]), "html.parser")
    assert [a["href"] for a in soup.select("th a")] == [
        "notebooks/02_a.html",
        "notebooks/03_b.html",
    ]
    assert [cell.text for cell in soup.select("tbody tr:first-child > *")] == list(run[1:5])
    assert len(soup.select("p")) == 1
    other = run._replace(name="03_b", versions="jax 2.0")
    words = [p.text for p in BeautifulSoup(status.table([run, other]), "html.parser").select("p")]
    assert words == ["02_a: jax 1.0.", "03_b: jax 2.0."]


def test_every_notebook_has_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(execute, "CACHE", tmp_path)
    rows = status.runs()
    assert [row.name for row in rows] == [path.stem for path in execute.notebooks()]
    assert {row.date for row in rows} == {status.NO_RECORD} and all(row.title for row in rows)


def test_the_last_cell_of_a_run_reports_the_device_and_the_versions(
    capsys: pytest.CaptureFixture[str],
):
    exec(execute.RECORD, {})  # jax is imported in this process
    record = execute.json.loads(capsys.readouterr().out)
    assert record.keys() == {"device", "python", "versions"} and "jax" in record["versions"]
