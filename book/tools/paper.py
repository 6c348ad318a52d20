"""Print the pages of the site to build/course.pdf; `make print` runs this script.

The pages are joined in the order of the table of contents, and Chromium prints them with tags, an
outline and alternative texts. A widget is printed in its initial state, with a link to its page.
Solutions are omitted.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from urllib.parse import urldefrag, urljoin

import address
import build
import execute
import vendor
import yaml
from bs4 import BeautifulSoup, Tag

PARTS = Path(__file__).parents[1] / "static" / "paper"
PAPER = execute.ROOT / "build" / "course.pdf"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--no-pdf-header-footer"),
    *("--allow-file-access-from-files", "--virtual-time-budget=600000"),
    *("--export-tagged-pdf", "--generate-pdf-document-outline"),
)
# Pages that are not printed, for example because their tables are too wide.
NOT_ON_PAPER = {"baselines", "popgym", "results", "settings", "runs", "scaling", "leaderboard"}
NOT_ON_PAPER |= {"models", "claims", "teach", "grading", "explore"}
# Equations are drawn as SVG, because Chromium adds alternative texts only to images.
MATHJAX = "mathjax@3.2.2"
DRAWING = {
    "es5/tex-svg.js": "tex-svg.js",
    "es5/input/tex/extensions/*.js": "input/tex/extensions/",
}
STATE = "application/vnd.jupyter.widget-state+json"
NO_PRINT = "a.headerlink, .tag_solution, script:not([type*=widget-view], .mmrl-explorer)"
PAGE = """\
<!DOCTYPE html>
<html lang="en" data-theme="light" data-mode="light"><head><meta charset="utf-8">
<title>{title}</title>{styles}<link rel="stylesheet" href="{parts}/paper.css">
<script src="{site}/_static/site.js"></script>{mathjax}
<script type="{kind}">{state}</script></head>
<body><header><p class="course">{title}</p></header><main class="bd-content">{body}</main>
<script src="tex-svg.js" defer></script>
<script src="{parts}/paper.js" defer></script>
<script src="{site}/_static/mount.js" defer></script>
<script src="{site}/_static/vendor/require.js" defer></script>
<script src="{site}/_static/widgets.js" defer></script>
<script src="{site}/_static/vendor/embed-amd.js" data-jupyter-widgets-cdn="nocdn/" defer></script>
</body></html>
"""


class PrintError(Exception):
    """Exception for a failure to write the PDF, with the reason as its message."""


def pages() -> list[str]:
    """Return the names of the pages to print, in reading order."""
    toc = yaml.safe_load((build.BOOK / "_toc.yml").read_text("utf-8"))
    names = [toc["root"], *(page["file"] for part in toc["parts"] for page in part["chapters"])]
    return [name for name in names if name not in NOT_ON_PAPER and not name.startswith("api/")]


def join(site: Path, names: list[str]) -> str:
    """Join pages into one HTML document that loads its resources from the site."""
    here, bodies, state, head = site.as_uri(), [], {}, ""
    for name in names:
        soup = BeautifulSoup((site / f"{name}.html").read_text("utf-8"), "html.parser")
        head = head or soup
        if script := soup.find("script", type=STATE):
            state |= json.loads(script.string).get("state", {})
        article = soup.select_one("article.bd-article")
        _settle(article, name, set(names), here)
        bodies.append(
            f'<article class="bd-article" id="{_id(name)}">{article.decode_contents()}</article>'
        )
    styles = [link for link in head.select("link[rel=stylesheet]")]
    for link in styles:
        link["href"] = urljoin(f"{here}/{names[0]}.html", link["href"])
    mathjax = next(
        s for s in head.find_all("script") if (s.string or "").startswith("window.MathJax")
    )
    return PAGE.format(
        title=head.title.string.rpartition("—")[2].strip(),
        styles="".join(map(str, styles)),
        mathjax=mathjax,
        kind=STATE,
        site=here,
        parts=PARTS.as_uri(),
        body="\n".join(bodies),
        state=json.dumps({"version_major": 2, "version_minor": 0, "state": state}).replace(
            "</", "<\\/"
        ),
    )


def _id(page: str, inside: str = "") -> str:
    return "-".join(filter(None, (page.replace("/", "-"), inside)))


def _settle(article: Tag, name: str, names: set[str], here: str) -> None:
    """Rewrite the links, identifiers and paths of a page for the joined document."""
    for node in article.select(NO_PRINT):
        node.decompose()
    for node in article.select("a.image-reference"):
        node.unwrap()
    for node in article.select("[id]"):
        node["id"] = _id(name, node["id"])
    for node in article.select("[src]"):
        node["src"] = urljoin(f"{here}/{name}.html", node["src"])
    for node in article.select("a[href]"):
        path, inside = urldefrag(urljoin(f"{name}.html", node["href"]))
        if path.removesuffix(".html") in names:
            node["href"] = f"#{_id(path.removesuffix('.html'), inside)}"
        elif not re.match(r"\w+:", path):
            node["href"] = live(path, here) + (f"#{inside}" if inside else "")
    for node in article.select("details"):
        node["open"] = ""
    for node in article.select('script[type*="widget-view"], .mmrl-mount'):
        link = f'<p class="live"><a href="{live(f"{name}.html", here)}">Live on the site</a></p>'
        (node.find_parent(class_="cell_output") or node).insert_after(
            BeautifulSoup(link, "html.parser")
        )


def live(page: str, here: str) -> str:
    """Return the URL of a page on the published or the local site."""
    return urljoin(address.site(), page) if address.site() else f"{here}/{page}"


def chromium() -> str:
    """Return the path of Chromium or Chrome. Raises `PrintError` if neither is installed."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise PrintError("Printing needs Chromium or Chrome (Debian: apt install chromium).")
    return path


def write_pdf(html: str, target: Path) -> None:
    """Print an HTML document to a PDF, and make its links to local files relative."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "course.html")
        page.write_text(html, "utf-8")
        vendor.unpack(MATHJAX, vendor.PACKAGES[MATHJAX][0], DRAWING, Path(folder))
        command = [chromium(), *FLAGS, f"--user-data-dir={folder}", f"--print-to-pdf={target}"]
        process = subprocess.run([*command, page.as_uri()], capture_output=True, text=True)
    if process.returncode or not target.exists():
        raise PrintError(process.stderr[-2000:])
    target.write_bytes(relative(target.read_bytes(), target.parent))


def relative(pdf: bytes, folder: Path) -> bytes:
    """Make the links to local files in a PDF relative to `folder`.

    Shorter links are padded with spaces, because a PDF stores byte offsets. Links that would become
    longer are not changed.
    """

    def shorter(match: re.Match[bytes]) -> bytes:
        path, mark, inside = match[1].decode().partition("#")
        shorter_path = os.path.relpath(path, folder.resolve())
        link = f"({shorter_path}{mark}{inside})".encode()
        return link.ljust(len(match[0])) if len(link) <= len(match[0]) else match[0]

    return re.sub(rb"\(file://([^()]*)\)", shorter, pdf)


def paper() -> Path:
    """Build the site, write the PDF and return its path. Raises `PrintError` or `NotBuilt`."""
    chromium()
    site = build.build()
    PAPER.parent.mkdir(exist_ok=True)
    print("Printing (a minute or two)", flush=True)
    write_pdf(join(site, pages()), PAPER)
    return PAPER


if __name__ == "__main__":
    try:
        print(f"The course is in {paper()}.")
    except (PrintError, build.NotBuilt) as error:
        sys.exit(f"The course could not be printed.\n{error}")
