"""A Sphinx extension: docstrings as they are written, and the tables of results.

Docstrings in mmrl are plain text: Unicode equations, indented tables, words in backticks. Read as
reStructuredText they would break, so `to_rst` says which part is what.
"""

import ast
import html
import inspect
import json
import operator
import re
import sys
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import address
import api
import moved
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config

RESULTS = Path(__file__).parent.parent / "results"
EMPHASIS = re.compile(r"(?<![\w*])\\\*(\w(?:[\w -]*\w)?)\\\*(?![\w*])")
CODE = re.compile(r"`([^`\n]+)`")
BULLET = re.compile(r"^[-*] ")
MOST_ROWS = 60
# Of every row these say where it comes from; they are shown once, above the table.
ORIGIN = ("command", "device", "date", "revision", "python", "versions")


def to_rst(lines: list[str]) -> list[str]:
    """A docstring as reStructuredText: paragraphs, lists, tables; the indented stays as it is."""
    out: list[str] = []
    for block in re.split(r"\n\s*\n", "\n".join(lines).strip("\n")):
        rows = block.split("\n")
        while rows:
            kind = _kind(rows[0])
            count = next((i for i, row in enumerate(rows) if not _goes_on(kind, row)), len(rows))
            count = max(1, count)
            out += [*RENDER[kind](rows[:count]), ""]
            rows = rows[count:]
    return out


def _kind(row: str) -> str:
    if row.startswith("    "):
        return "literal"
    if BULLET.match(row):
        return "list"
    return "table" if row.startswith(("| ", "|-")) and row.endswith("|") else "text"


def _goes_on(kind: str, row: str) -> bool:
    """Whether a row belongs to what began above it."""
    if kind == "list":
        return bool(BULLET.match(row)) or row.startswith(" ")
    return kind == _kind(row)


def _text(rows: list[str]) -> list[str]:
    return [_inline(row.strip()) for row in rows]


def _list(rows: list[str]) -> list[str]:
    return [row[:2] + _inline(row[2:]) for row in rows]


def _literal(rows: list[str]) -> list[str]:
    return [
        ".. code-block:: text",
        "",
        *(f"    {row}" for row in textwrap.dedent("\n".join(rows)).split("\n")),
    ]


def _table(rows: list[str]) -> list[str]:
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    body = [row for row in cells if not all(set(cell) <= {"-", ":"} for cell in row)]
    out = [".. list-table::", "    :header-rows: 1", ""]
    for row in body:
        out += [f"    {'*' if i == 0 else ' '} - {_inline(cell)}" for i, cell in enumerate(row)]
    return out


RENDER = {"text": _text, "list": _list, "literal": _literal, "table": _table}


def _inline(text: str) -> str:
    """Backticks are code, a word between asterisks is stressed, and nothing else is markup."""
    parts = CODE.split(text)
    for i, part in enumerate(parts):
        plain = re.sub(r"([\\*`|_])", r"\\\1", part)
        parts[i] = f"``{part}``" if i % 2 else EMPHASIS.sub(r"*\1*", plain)
    # Markup has to stand apart: a backslash and a space is nothing that can be seen.
    return "".join(f"\\ {part}\\ " if i % 2 else part for i, part in enumerate(parts))


def process_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = to_rst(lines)
    fields = _fields(obj) if what == "class" else ""
    if fields:
        lines += [".. code-block:: python", "", *(f"    {row}" for row in fields.split("\n")), ""]


def process_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str, result: str
) -> tuple[str, str] | None:
    """Signatures as the source has them: `Float[Array, "time obs"]`, and not what it becomes."""
    node = _node(obj)
    if isinstance(node, ast.ClassDef):
        made = [part for part in node.body if getattr(part, "name", "") == "__init__"]
        if made and isinstance(made[0], ast.FunctionDef):
            return f"({_arguments(made[0].args, skip=1)})", ""
        # The fields are the arguments, and are shown in full below.
        return (f"({', '.join(_names(node))})", "") if _annotated(node) else ("()", "")
    if not isinstance(node, ast.FunctionDef):
        return None
    method = what == "method" and "staticmethod" not in map(ast.unparse, node.decorator_list)
    returns = _source(node.returns) if node.returns else ""
    return f"({_arguments(node.args, skip=int(method))})", returns


def _arguments(arguments: ast.arguments, skip: int) -> str:
    arguments.args = arguments.args[skip:]
    return _source(arguments)


def _names(node: ast.ClassDef) -> list[str]:
    """The fields that a caller gives; those with a value show it."""
    words = []
    for part in _annotated(node):
        value = part.value
        if isinstance(value, ast.Call):  # equinox's or dataclasses' field
            value = next((k.value for k in value.keywords if k.arg == "default"), None)
        name = ast.unparse(part.target)
        words.append(f"{name}={_source(value)}" if value else name)
    return sorted(words, key=lambda word: "=" in word)


def _source(node: ast.AST) -> str:
    return ast.unparse(node).replace("'", '"')


def _annotated(node: ast.ClassDef) -> list[ast.AnnAssign]:
    return [part for part in node.body if isinstance(part, ast.AnnAssign)]


def _node(obj: Any) -> ast.stmt | None:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(obj))).body[0]
    except (OSError, TypeError, SyntaxError):
        return None


def _fields(obj: type) -> str:
    """The fields of a class as its source has them: their comments are their documentation."""
    node = _node(obj)
    fields = _annotated(node) if isinstance(node, ast.ClassDef) else []
    if not fields:
        return ""
    rows = textwrap.dedent(inspect.getsource(obj)).split("\n")
    first = fields[0].lineno - 1
    while rows[first - 1].strip().startswith("#"):
        first -= 1
    return textwrap.dedent("\n".join(rows[first : fields[-1].end_lineno]))


def skip_member(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Fields are shown with their comments, traits with their controls: not once more.

    What a rung gives away of another one is shown there.
    """
    home = str(getattr(obj, "__module__", "")).split(".")
    if what == "module" and home[0] == "mmrl" and app.env.docname != f"api/{home[1]}":
        return True
    return True if what == "class" and not callable(obj) and not isinstance(obj, property) else None


def read(name: str) -> list[dict[str, Any]]:
    """The rows of a file of results; none if there is no file."""
    path = RESULTS / name
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


def table(name: str, rows: list[dict[str, Any]]) -> str:
    """The rows of one file in HTML: their origin in words, then their numbers."""
    columns = [c for c in dict.fromkeys(c for row in rows for c in row) if c not in ORIGIN]
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(show(row.get(c)))}</td>' for c in columns)}</tr>"
        for row in rows[:MOST_ROWS]
    )
    more = len(rows) - MOST_ROWS
    rest = f"<p>{more} more rows are in the file.</p>" if more > 0 else ""
    heads = [column.replace("_", " ") for column in columns]
    return f"{origin(name, rows)}{scrolling(f'Rows of {name}', heads, body)}{rest}"


def scrolling(label: str, heads: Sequence[str], body: str) -> str:
    """A table in HTML that scrolls within itself; `body` has its rows."""
    head = "".join(f'<th scope="col">{html.escape(x)}</th>' for x in heads)
    return (
        f'<div class="results" role="region" tabindex="0" aria-label="{html.escape(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def origin(name: str, rows: list[dict[str, Any]]) -> str:
    """File, number of rows, and every command with the device, the dates and the versions."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        key = (row.get("command", "an unknown command"), row.get("device", "an unknown device"))
        groups.setdefault(key, []).append(row)
    items = []
    for (command, device), group in groups.items():
        dates = sorted(str(row.get("date", "an unknown date"))[:10] for row in group)
        when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
        versions = group[-1].get("versions", {})
        with_ = ", ".join(
            f"{k} {v}" for k, v in versions.items() if k in ("mmrl", "jax", "equinox")
        )
        revisions = ", ".join(
            dict.fromkeys(str(row["revision"]) for row in group if row.get("revision"))
        )
        words = f"{len(group)} rows, {when}, on {device}"
        words += f"; {with_}" if with_ else ""
        words += f"; revision {revisions}" if revisions else ""
        items.append(f"<li>{html.escape(words)}:<br><code>{html.escape(command)}</code></li>")
    return f"<p><code>book/results/{html.escape(name)}</code></p><ul>{''.join(items)}</ul>"


def show(value: Any) -> str:
    """A value in a cell: numbers short, lists by their first and their length."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        words = ", ".join(show(x) for x in value[:5] if not isinstance(x, list))
        return words if len(value) <= 5 and words else f"{words}… ({len(value)})"
    if isinstance(value, dict):
        return ", ".join(f"{k} {show(v)}" for k, v in value.items())
    return str(value)


def leave_equations(app: Any, doctree: nodes.document) -> None:
    """Display equations as they are written: Sphinx would wrap lines so that \\tag fails."""
    for node in doctree.findall(nodes.math_block):
        text = node.astext()
        if r"\tag" in text and not node.get("nowrap"):
            node["nowrap"] = True
            node.children = []
            node += nodes.Text(rf"\[{text}\]")


def name_exactly(app: Any, doctree: nodes.document) -> None:
    """Links in signatures lead to what a name means in its module, not to a namesake elsewhere."""
    shown = {module for rung in api.rungs() for module in api.modules(rung)}
    for signature in doctree.findall(addnodes.desc_signature):
        module = signature.get("module")
        if module not in shown:
            continue
        owner = _meaning(sys.modules[module], signature["fullname"])
        home = sys.modules[getattr(owner, "__module__", None) or module]
        for link in signature.findall(addnodes.pending_xref):
            meant = _meaning(home, link["reftarget"])
            if isinstance(meant, type) and (place := _place(meant, shown)):
                link["reftarget"] = f"{place}.{meant.__qualname__}"
            elif meant is not None and not isinstance(meant, type):  # has no place of its own
                link["reftarget"] = f"{module}.{link['reftarget']}"
                link.attributes.pop("refspecific", None)


def _place(meant: type, shown: set[str]) -> str | None:
    """The module that shows a class: its own, or a package above it that gives it away."""
    module = meant.__module__
    while module and not (
        module in shown and _meaning(sys.modules[module], meant.__qualname__) is meant
    ):
        module = module.rpartition(".")[0]
    return module or None


def _meaning(module: Any, path: str) -> Any:
    try:
        return operator.attrgetter(path)(module)
    except AttributeError:
        return None


def without_thebe(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Jupyter Book always adds Thebe, which we do not use, and adds its settings twice."""
    scripts = context["script_files"]
    context["script_files"] = [
        script for script in scripts if "thebe" not in f"{script}{script.attributes}".lower()
    ]


# What the theme, MyST-NB and Sphinx write that a screen reader reads wrongly, and what is right.
MENDED = (
    # The text inside is the name: another one would hide it.
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (r'(<button class="btn search-button-field[^>]*) aria-label="Search"', r"\1"),
    (
        r'(<button class="[^"]*theme-switch-button[^>]*) aria-label="Color mode"([^>]*>)',
        r'\1\2<span class="visually-hidden">Color mode</span>',
    ),
    # An arrow says nothing.
    (r'<summary>(<span class="toctree-toggle")', r'<summary aria-label="Pages below">\1'),
    # What a list holds are list items; the role that entries of a bibliography had is deprecated.
    (r'(<div class="citation"[^>]*) role="doc-biblioentry"', r'\1 role="listitem"'),
    # A parameter is nobody's definition.
    (r'<dl>\n((?:<dd><em class="sig-param">.*</dd>\n)+)</dl>', r"<div>\n\1</div>"),
    (r'<dd>(<em class="sig-param">.*)</dd>', r'<div class="parameter">\1</div>'),
)


def mend(app: Any, error: Exception | None) -> None:
    """Make the finished pages accessible where no setting or template of ours can."""
    for path in Path(app.outdir).rglob("*.html") if error is None else ():
        text = path.read_text("utf-8")
        for wrong, right in MENDED:
            text = re.sub(wrong, right, text)
        path.write_text(text, "utf-8")
    if error is None:
        moved.lead_on(Path(app.outdir))


def buttons(app: Sphinx, config: Config) -> None:
    """Adds the buttons that need the repository's address: none as long as there is none."""
    config.html_theme_options.update(address.theme_options(address.address()))


def titles_alone(app: Sphinx, page: str, template: str, context: dict, doctree: Any) -> None:
    """Builds the sidebar, which has titles, from titles.

    For each of hundreds of pages Sphinx copies all tables of contents, which are of thousands of
    objects, and then leaves out what is no title: that took a third of the time of a build.
    """
    whole, titles = context["toctree"], _titles(app)

    def toctree(**options: Any) -> str:
        with mock.patch.object(
            app.env, "tocs", titles if options.get("titles_only") else app.env.tocs
        ):
            return whole(**options)

    context["toctree"] = toctree


@cache
def _titles(app: Sphinx) -> dict[str, nodes.bullet_list]:
    """All tables of contents without what stands below a page's title, but for other pages."""
    found = {name: toc.deepcopy() for name, toc in app.env.tocs.items()}
    for item in (item for toc in found.values() for item in toc.children if len(item) > 1):
        item[1:] = [nodes.bullet_list("", *item.findall(addnodes.toctree))]
    return found


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", buttons)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-process-signature", process_signature)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("doctree-read", leave_equations)
    app.connect("doctree-read", name_exactly)
    app.connect("html-page-context", without_thebe, priority=900)
    app.connect("html-page-context", titles_alone, priority=100)
    app.connect("build-finished", mend)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
