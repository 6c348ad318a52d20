"""Sphinx extension that renders docstrings as Markdown, and tables of results.

Docstrings in mmrl are Markdown with Unicode equations, indented tables and backticks around code.
"""

import ast
import html
import inspect
import json
import re
import textwrap
import typing
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any
from unittest import mock

import address
from docutils import nodes
from docutils.utils import new_document
from myst_parser.mdit_to_docutils.sphinx_ import SphinxRenderer
from myst_parser.parsers.mdit import create_md_parser
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import stringify_signature

typing.GENERATING_DOCUMENTATION = "mmrl"  # makes jaxtyping print types as in the source code
RESULTS = Path(__file__).parent.parent / "results"
MOST_ROWS = 60
MOST_PARAMETERS = 10  # in the signature of a class, whose fields are shown below it
# Fields with the provenance of a row. They are shown above the table.
ORIGIN = ("command", "device", "date", "revision", "python", "versions")


# A symbol with subscripts and superscripts, or any other underscore, outside code.
SCRIPTS = re.compile(
    r"^    .*$|`[^`]+`|\"[^\"\n]+\"|"
    r"((?:\b|(?<=_))(?:[^\W\d_]|arg(?:max|min)|max|min|mean|log)[\u0300-\u036f'*]*)"
    r"((?:[_^](?:\{[^{}]+\}|[^\W_]+))+)|_",
    flags=re.MULTILINE,
)
SCRIPT = re.compile(r"([_^])(?:\{([^{}]+)\}|([^\W_]+))")


def typeset(text: str) -> str:
    """Convert x_t and γ^{t-s} in a docstring to subscripts and superscripts, and escape other _."""

    def replacement(match: re.Match[str]) -> str:
        symbol, scripts = match.groups()
        if scripts is None:
            return r"\_" if match[0] == "_" else match[0]
        parts = SCRIPT.findall(scripts)
        return symbol + "".join(
            f"{{{'sub' if kind == '_' else 'sup'}}}`{long or short}`" for kind, long, short in parts
        )

    return SCRIPTS.sub(replacement, text)


def markdown(lines: list[str]) -> list[str]:
    """Wrap a docstring in a `markdown` directive, and indent and separate its code blocks."""
    text = "\n".join(lines)
    # In a docstring that consists of a line and an example, the example is not indented.
    text = re.sub(r"^>>> (?:.+\n?)+", lambda x: textwrap.indent(x[0], "    "), text, flags=re.M)
    text = re.sub(r"^(?![-*] | ).+\n(?=    \S)", r"\g<0>\n", text, flags=re.MULTILINE)
    text = typeset(text)
    return [".. markdown::", "", *(f"    {line}" for line in text.split("\n")), ""]


class Markdown(SphinxDirective):
    """Directive that renders Markdown within the reStructuredText that autodoc generates."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        """Parse the content of the directive as Markdown."""
        document = new_document(self.get_location(), self.state.document.settings)
        config = self.env.myst_config.copy(disable_syntax=["html_block", "html_inline"])
        parser = create_md_parser(config, SphinxRenderer)
        parser.options["document"] = document
        parser.render("\n".join(self.content))
        return document.children


def process_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Replace a docstring with a `markdown` directive, followed by the fields of a class."""
    lines[:] = markdown(lines)
    fields = _fields(obj) if what == "class" else ""
    if fields:
        lines += [".. code-block:: python", "", *(f"    {row}" for row in fields.split("\n")), ""]


def process_signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str, result: str
) -> tuple[str, str] | None:
    """Remove types, or many parameters, from the signature of a class with fields below it."""
    if what != "class" or not signature:
        return None
    if "*args" in signature:  # protocols and classes with traits have no useful signature
        return "", ""
    fields = getattr(obj, "__dataclass_fields__", getattr(obj, "_fields", ()))
    parameters = inspect.signature(obj).parameters
    if not {*parameters} <= {*fields}:
        return None
    if len(parameters) > MOST_PARAMETERS:
        return "", ""
    text = stringify_signature(inspect.signature(obj), show_annotation=False)
    return re.sub(r"<(?:class|function) '?([\w.]+)[^>]*>", r"\1", text), ""


def _fields(obj: type) -> str:
    """Return the source code of a class's fields above its methods, with their comments."""
    try:
        source = textwrap.dedent(inspect.getsource(obj))
    except (OSError, TypeError):
        return ""
    body = getattr(ast.parse(source).body[0], "body", [])
    above = takewhile(lambda part: not isinstance(part, ast.FunctionDef), body)
    fields = [part for part in above if isinstance(part, ast.AnnAssign)]
    if not fields:
        return ""
    rows, first = source.split("\n"), fields[0].lineno - 1
    while rows[first - 1].strip().startswith("#"):
        first -= 1
    return textwrap.dedent("\n".join(rows[first : fields[-1].end_lineno]))


def skip_member(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Skip the fields and traits of a class, because the page shows them above its methods.

    Names that a package re-exports are skipped too, because another page shows them.
    """
    home = str(getattr(obj, "__module__", "")).split(".")
    if what == "module" and home[0] == "mmrl" and app.env.docname != f"api/{home[1]}":
        return True
    return True if what == "class" and not callable(obj) and not isinstance(obj, property) else None


def read(name: str) -> list[dict[str, Any]]:
    """Read the rows of a results file. Return an empty list if the file does not exist."""
    path = RESULTS / name
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.strip()]


def table(name: str, rows: list[dict[str, Any]]) -> str:
    """Return the provenance of rows and a table of their fields, as HTML."""
    columns = [c for c in dict.fromkeys(c for row in rows for c in row) if c not in ORIGIN]
    body = [[html.escape(show(row.get(c))) for c in columns] for row in rows[:MOST_ROWS]]
    more = len(rows) - MOST_ROWS
    rest = f"<p>{more} more rows are in the file.</p>" if more > 0 else ""
    heads = [column.replace("_", " ") for column in columns]
    return f"{origin(name, rows)}{scrolling(f'Rows of {name}', heads, body)}{rest}"


def scrolling(
    label: str, heads: Sequence[str], rows: Iterable[Sequence[str]], name: int | None = None
) -> str:
    """Return a scrollable table of HTML cells, with column `name` as row headings."""
    head = "".join(f'<th scope="col">{html.escape(x)}</th>' for x in heads)
    body = ""
    for row in rows:
        cells = (
            f'<th scope="row">{cell}</th>' if i == name else f"<td>{cell}</td>"
            for i, cell in enumerate(row)
        )
        body += f"<tr>{''.join(cells)}</tr>"
    return (
        f'<div class="results" role="region" tabindex="0" aria-label="{html.escape(label)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def origin(name: str, rows: list[dict[str, Any]]) -> str:
    """Return the provenance of rows as HTML, with one item per command and device."""
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
    """Format a value for a table cell: numbers are rounded, and lists are shortened."""
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
    """Disable Sphinx's processing of display equations with \\tag, which would break them."""
    for node in doctree.findall(nodes.math_block):
        text = node.astext()
        if r"\tag" in text and not node.get("nowrap"):
            node["nowrap"] = True
            node.children = []
            node += nodes.Text(rf"\[{text}\]")


def without_thebe(
    app: Any, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Remove the scripts of Thebe, which Jupyter Book always adds."""
    scripts = context["script_files"]
    context["script_files"] = [
        script for script in scripts if "thebe" not in f"{script}{script.attributes}".lower()
    ]


# HTML from the theme, MyST-NB and Sphinx that screen readers misinterpret, and its replacement.
FIXES = (
    # The text in the element is its accessible name, which an aria-label would override.
    (r'<summary aria-label="Toggle hidden content">', "<summary>"),
    (r'(<button class="btn search-button-field[^>]*) aria-label="Search"', r"\1"),
    (
        r'(<button class="[^"]*theme-switch-button[^>]*) aria-label="Color mode"([^>]*>)',
        r'\1\2<span class="visually-hidden">Color mode</span>',
    ),
    # Screen readers cannot read the arrow.
    (r'<summary>(<span class="toctree-toggle")', r'<summary aria-label="Pages below">\1'),
    # The role doc-biblioentry is deprecated, and the children of a list must be list items.
    (r'(<div class="citation"[^>]*) role="doc-biblioentry"', r'\1 role="listitem"'),
    # Parameters are not definitions of terms.
    (r'<dl>\n((?:<dd><em class="sig-param">.*</dd>\n)+)</dl>', r"<div>\n\1</div>"),
    (r'<dd>(<em class="sig-param">.*)</dd>', r'<div class="parameter">\1</div>'),
)
# Remove the spans around the words of a signature, because they make up a sixth of the longest
# pages. Their only effect is to allow line breaks, which site.css allows anyway.
SIGNATURE = re.compile(r'<dt class="sig .*?</dt>', flags=re.DOTALL)
WORD = re.compile(r'<span class="pre">([^<]*)</span>')


def fix_html(app: Any, error: Exception | None) -> None:
    """Fix the accessibility and the size of the finished pages by replacing HTML."""
    for path in Path(app.outdir).rglob("*.html") if error is None else ():
        text = path.read_text("utf-8")
        for wrong, right in FIXES:
            text = re.sub(wrong, right, text)
        text = SIGNATURE.sub(lambda match: WORD.sub(r"\1", match[0]), text)
        path.write_text(text, "utf-8")


def buttons(app: Sphinx, config: Config) -> None:
    """Add the buttons that link to the repository, if its address is known."""
    config.html_theme_options.update(address.theme_options(address.address()))


def only_titles(app: Sphinx, page: str, template: str, context: dict, doctree: Any) -> None:
    """Build the sidebar from tables of contents that contain only the titles of pages.

    By default, Sphinx copies the complete tables of contents for each page and then removes
    everything except the titles. That took a third of the build time.
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
    """Return all tables of contents, reduced to titles of pages and links to other pages."""
    tables = {name: toc.deepcopy() for name, toc in app.env.tocs.items()}
    for item in (item for toc in tables.values() for item in toc.children if len(item) > 1):
        item[1:] = [nodes.bullet_list("", *item.findall(addnodes.toctree))]
    return tables


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the event handlers."""
    app.setup_extension("sphinx.ext.autodoc")
    app.add_directive("markdown", Markdown)
    app.connect("config-inited", buttons)
    app.connect("autodoc-process-docstring", process_docstring)
    app.connect("autodoc-skip-member", skip_member)
    app.connect("autodoc-process-signature", process_signature)
    app.connect("doctree-read", leave_equations)
    app.connect("html-page-context", without_thebe, priority=900)
    app.connect("html-page-context", only_titles, priority=100)
    app.connect("build-finished", fix_html)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
