"""A release says one version everywhere, and nothing of it is tagged before it is whole."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import mmrl

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools")]
import release  # noqa: E402

CHANGES = "## [Unreleased]\n\n### Added\n\n- More.\n\n## [1.2.0] - unreleased\n\n- All.\n"
READY = "## [Unreleased]\n\n## [1.2.0] - 2026-03-02\n\n- All.\n\n## [1.1.0] - 2026-01-31\n"


def test_package_citation_and_changelog_have_one_version():
    assert set(release.versions().values()) == {mmrl.__version__}


def test_a_citation_has_what_the_format_asks_for():
    text = (ROOT / "CITATION.cff").read_text("utf-8")
    keys = set(re.findall(r"^([\w-]+):", text, re.MULTILINE))
    assert {"cff-version", "message", "title", "authors"} <= keys


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of version 1.2.0, ready to be tagged."""
    (tmp_path / "mmrl").mkdir()
    (tmp_path / "mmrl" / "__init__.py").write_text('__version__ = "1.2.0"\n')
    (tmp_path / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.2.0\n")
    (tmp_path / "CHANGELOG.md").write_text(READY)
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    for command in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "All")):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    return tmp_path


def test_what_is_left_to_do_before_a_tag_is_said(checkout: Path):
    assert release.lacking(checkout) == []
    (checkout / "CHANGELOG.md").write_text(CHANGES)
    assert set(release.versions(checkout).values()) == {"1.2.0"}
    steps = release.lacking(checkout)
    assert [line.partition(":")[0] for line in steps] == ["CHANGELOG.md", "CHANGELOG.md", "git"]
    assert "[Unreleased]" in steps[0] and "[1.2.0]" in steps[0] and "`## [1.2.0] - " in steps[1]
    subprocess.run(["git", "checkout", "-q", "."], cwd=checkout, check=True)
    subprocess.run(["git", "tag", "v1.2.0"], cwd=checkout, check=True)
    (step,) = release.lacking(checkout)
    assert step.startswith("git: ") and "v1.2.0" in step


def test_files_of_several_versions_are_not_built(checkout: Path, monkeypatch: pytest.MonkeyPatch):
    (checkout / "CITATION.cff").write_text("cff-version: 1.2.0\nversion: 1.1.0\n")
    result = release.versions(checkout)
    monkeypatch.setattr(release, "versions", lambda: result)
    monkeypatch.setattr(release, "build", None)
    with pytest.raises(SystemExit, match=r"1\.2\.0 in mmrl/__init__\.py, 1\.1\.0 in CITATION\.cff"):
        release.main()


def test_a_wheel_without_a_file_of_the_package_is_found_out(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "all.whl", "w") as wheel:
        for path in (ROOT / "mmrl").rglob("*"):
            wheel.writestr(path.relative_to(ROOT).as_posix(), "") if path.is_file() else None
    assert release.missing(tmp_path / "all.whl") == set()
    with zipfile.ZipFile(tmp_path / "one.whl", "w") as wheel:
        wheel.writestr("mmrl/__init__.py", "")
    assert "mmrl/py.typed" in release.missing(tmp_path / "one.whl")
