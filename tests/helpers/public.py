"""The public names of mmrl with their signatures, as in `tests/public.txt`.

`python tests/helpers/public.py` updates that file, and `book/stability.md` explains which changes
are allowed. Signatures contain the names, kinds and defaults of arguments, but no types. The
entries of string collections, such as `mmrl.memory.NAMES`, are listed, because users write them.
"""

import ast
import dataclasses
import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "book" / "tools"), str(ROOT)]
import api  # noqa: E402

SNAPSHOT = ROOT / "tests" / "public.txt"
# Public modules in packages, keyed by package.
PARTS = {
    "agents": ("presets",),  # in addition to the modules of agents
    "envs": ("probes", "wrappers"),
    "pdg": ("passes",),
    "replay": ("reservoir", "segments", "sequences", "tape"),
    "runs": ("zoo",),
}
PROTOCOL = ("__call__", "__getitem__", "__iter__", "__len__", "__enter__")
ADVICE = (
    "If the change is intended, follow book/stability.md, add a line to CHANGELOG.md, and run "
    "`python tests/helpers/public.py`, which renews tests/public.txt."
)
WIDTH, MOST = 100, 60  # maximum number of characters in a line and in a default value


def doors() -> list[str]:
    """Return the modules with public names, in the README's order, without the course."""
    rungs = [name for name in api.rungs() if name != "course"]
    return [f"mmrl.{name}" for rung in rungs for name in (rung, *_parts(rung))]


def _parts(rung: str) -> list[str]:
    agents = importlib.import_module("mmrl.agents").AGENTS.values() if rung == "agents" else ()
    modules = [module.__name__.removeprefix("mmrl.") for module in agents]
    return sorted([*modules, *(f"{rung}.{part}" for part in PARTS.get(rung, ()))])


def names(module: ModuleType) -> list[str]:
    """Return the public names of a module.

    The public names are listed in `__all__`. Without `__all__`, they are the names that the module
    defines, or imports with `import x as x`.
    """
    if hasattr(module, "__all__"):
        return list(module.__all__)
    results = [
        name for node in ast.parse(inspect.getsource(module)).body for name in _bound_names(node)
    ]
    return [
        name
        for name in results
        if not name.startswith("_") and not isinstance(getattr(module, name), TypeVar)
    ]


def _bound_names(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=targets):
            return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.ImportFrom(names=aliases):
            return [alias.name for alias in aliases if alias.asname == alias.name]
    return []


def entries() -> dict[str, str]:
    """Return the description of each public name, in alphabetical order."""
    modules = {door: importlib.import_module(door) for door in doors()}
    values = {f"{d}.{name}": getattr(m, name) for d, m in modules.items() for name in names(m)}
    classes = {value: name for name, value in values.items() if _is_ours(value)}
    result = {}
    for name, value in values.items():
        result |= _class(name, value, classes) if _is_ours(value) else {name: _other(name, value)}
    result |= {f"$ mmrl {name}": _options(name) for name in _commands()}
    return dict(sorted(result.items()))


def _is_ours(value: Any) -> bool:
    return isinstance(value, type) and value.__module__.startswith("mmrl")


def _class(name: str, cls: type, public: Mapping[type, str]) -> dict[str, str]:
    """Describe a class and its members, without those inherited from another public class."""
    above = [base for base in cls.__mro__[1:] if base in public]
    parameters = {one.name for one in _parameters(cls)}
    line = name if getattr(cls, "_is_protocol", False) else _call(name, cls)
    results = {name: " : ".join((line, *(public[base] for base in above[:1])))}
    for member, value in _members(cls, above).items():
        text = f"{name}.{member}"
        if member not in parameters:
            results[text] = _call(text, value) if callable(value) else text
    return results


def _members(cls: type, above: list[type]) -> Mapping[str, Any]:
    result: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("mmrl") and not any(issubclass(one, base) for one in above):
            result |= dict.fromkeys(inspect.get_annotations(base)) | vars(base)
    visible = [
        n for n, value in result.items() if not n.startswith("_") or (n in PROTOCOL and value)
    ]
    return {name: getattr(cls, name, None) for name in visible}


def _other(name: str, value: Any) -> str:
    """Describe a function by its signature, or a constant by its strings."""
    function = inspect.isfunction(value) or hasattr(value, "__wrapped__")
    return _call(name, value) if function else " ".join((name, *_strings(value)))


def _strings(value: Any) -> list[str]:
    """Return the entries of a collection of strings, or the keys of a dictionary."""
    if not isinstance(value, tuple | list | set | frozenset | Mapping):
        return []
    results = list(value)
    return (
        ["=", *sorted(results)] if results and all(isinstance(one, str) for one in results) else []
    )


def _commands() -> list[str]:
    return list(importlib.import_module("mmrl.__main__").COMMANDS)


def _options(command: str) -> str:
    """Describe the options of a command, without the settings of agents."""
    module = importlib.import_module(f"mmrl.commands.{command}")
    results = {
        n: v
        for n, v in vars(module).items()
        if getattr(v, "__module__", "").startswith("mmrl.commands.")
    }
    kinds = {n: v for n, v in results.items() if dataclasses.is_dataclass(v)}
    kinds = {"": kinds["Options"]} if "Options" in kinds else kinds
    return "\n".join(
        _call(f"$ mmrl {command} {name.lower()}".strip(), kind, list(_fields(kind)))
        for name, kind in kinds.items()
    )


def _fields(kind: Any) -> Iterator[inspect.Parameter]:
    for one, parameter in zip(dataclasses.fields(kind), _parameters(kind), strict=True):
        inner = dataclasses.is_dataclass(one.default_factory)
        yield from _fields(one.default_factory) if inner else [parameter]


def _call(name: str, function: Any, parameters: list[inspect.Parameter] | None = None) -> str:
    bare = [one.replace(annotation=one.empty) for one in parameters or _parameters(function)]
    arguments = [one.replace(default=_ShortDefault.of(one.default)) for one in bare]
    line = f"{name}{inspect.Signature(arguments)}"
    return line if len(line) <= WIDTH else f"{name}(\n{_rows(arguments)})"


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function or class, or an empty list if they are unknown."""
    try:
        result = inspect.signature(function).parameters.values()
    except ValueError:
        return []
    return [one for one in result if one.name != "self"]


def _rows(parameters: list[inspect.Parameter]) -> str:
    rows, before = [], None
    for one in parameters:
        if one.kind is one.KEYWORD_ONLY and before not in (one.KEYWORD_ONLY, one.VAR_POSITIONAL):
            rows.append("*")
        rows.append(str(one))
        before = one.kind
    return "".join(f"    {row},\n" for row in rows)


@dataclasses.dataclass(frozen=True)
class _ShortDefault:
    """Default value with a short representation."""

    text: str

    @classmethod
    def of(cls, default: Any) -> Any:
        if default is inspect.Parameter.empty:
            return default
        default = default.as_posix() if isinstance(default, Path) else default
        text = getattr(default, "__qualname__", None) or repr(default)
        return cls(text if len(text) <= MOST and " at 0x" not in text else type(default).__name__)

    def __repr__(self) -> str:
        return self.text


def text() -> str:
    return "".join(f"{one}\n" for one in entries().values())


def difference(before: str, results: str) -> str:
    """Return the changed lines with advice, or "" if no line has changed."""
    lines = difflib.unified_diff(
        before.splitlines(), results.splitlines(), "listed", "found", "", "", 0
    )
    text = "\n".join(lines)
    return text and f"Public names have changed.\n{text}\n{ADVICE}"


if __name__ == "__main__":
    SNAPSHOT.write_text(text(), "utf-8")
    print("Wrote tests/public.txt. Add a line to CHANGELOG.md for each change in it.")
