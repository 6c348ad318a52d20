"""Two reading paths stay short: to a trained DQN with an LRU on a tape, and to a compiled loop.

The first path consists of every file that the agent and its memory import from, name by name: a
name that a package only passes on is read where it is defined. An import within a function belongs
to a branch that a reader may skip. The path ends where a reader may stop, which `BESIDE` lists with
the reason: one sentence about the calls into those files is enough to continue reading.

The second path leads from a `Program` through the six stages of compilation to its XLA program. The
docstring of `mmrl.pdg` lists its modules.
"""

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

FROM = ("mmrl.agents.dqn", "mmrl.memory.lru")
MOST_FILES, MOST_LINES = 12, 2000
BESIDE = {
    "mmrl._devices": "rows are divided among devices; on one, nothing happens",
    "mmrl._dtypes": "types of numbers under settings of JAX",
    "mmrl._random": "keys, and the random numbers of JAX compiled sooner",
    "mmrl._spaces": "a step that had no legal action is read from a state",
    "mmrl.agents.checks": "settings that are refused",
    "mmrl.agents.normalize": "rewards are divided by the deviation of their discounted sums",
    "mmrl.agents.settings": "fields of settings, with the ranges that they declare",
    "mmrl.memory": "memories are found by their names",
    "mmrl.memory.checks": "arrays that are refused",
    "mmrl.monoid.tapes": "arrays of elements are converted, and refused",
    "mmrl.replay.frames": "pictures are stored once; vectors pass through",
    "mmrl.replay.ring": "rows are written and read around a ring",
    "mmrl.replay.tree": "rows are drawn by weight in O(log capacity)",
    "mmrl.returns": "λ-returns are a scan of Affine",
}

COMPILER = ("build.program", "clean", "passes", "schedule", "plan.frees", "plan.code")
COMPILER += ("plan.layout", "run.lowering", "run.xla")
MOST_OF_A_COMPILER = 2500  # lines


def source(module: str) -> Path | None:
    """The file of a module of mmrl; None of what is no module."""
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        return None
    return Path(spec.origin) if spec and spec.origin else None


def at_the_top(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes of a file but those within its functions and classes."""
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield from ast.walk(node)


def home(module: str, name: str) -> str:
    """The module that defines a name which `module` has: itself, unless it passes it on."""
    path = source(module)
    assert path is not None, module
    for node in at_the_top(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and name in {a.asname or a.name for a in node.names}:
            inside = f"{node.module}.{name}"
            return inside if source(inside) else home(node.module or "", name)
    return module


def read_for(module: str) -> set[str]:
    """The modules of mmrl that define what this one imports."""
    path = source(module)
    assert path is not None, module
    tree = ast.parse(path.read_text("utf-8"))
    tree.body = [node for node in tree.body if not isinstance(node, ast.If)]  # passed on
    nodes = list(at_the_top(tree))
    whole = {node.names[0].name for node in nodes if isinstance(node, ast.Import)}
    result = {name for name in whole if name.startswith("mmrl.")}
    for node in nodes:
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("mmrl"):
            continue
        for alias in node.names:
            inside = f"{node.module}.{alias.name}"
            path = source(inside)
            if path is None:
                result.add(home(node.module or "", alias.name))
            elif path.name != "__init__.py":
                result.add(inside)
            else:  # a whole package: what is taken from it here
                result |= {
                    home(inside, x.attr)
                    for x in ast.walk(tree)
                    if isinstance(x, ast.Attribute) and ast.unparse(x.value) == alias.name
                }
    return result


def test_from_a_monoid_to_a_trained_agent_it_is_not_far():
    waiting, path, names = list(FROM), set(), set()
    while waiting:
        module = waiting.pop()
        if module in BESIDE:
            names.add(module)
        elif module not in path:
            path.add(module)
            waiting += read_for(module)
    assert names == set(BESIDE), f"not met: {set(BESIDE) - names}"
    lines = {m: len((source(m) or Path()).read_text("utf-8").splitlines()) for m in path}
    assert "mmrl.monoid.core" in path
    assert len(lines) <= MOST_FILES, sorted(lines)
    assert sum(lines.values()) <= MOST_LINES, lines


def test_from_a_program_to_its_compiled_loop_it_is_not_far():
    overview = (source("mmrl.pdg") or Path()).read_text("utf-8")
    assert not [name for name in COMPILER if f"`{name}`" not in overview]
    paths = [source(f"mmrl.pdg.{name}") or Path() for name in COMPILER]
    lines = {str(path): len(path.read_text("utf-8").splitlines()) for path in paths}
    assert sum(lines.values()) <= MOST_OF_A_COMPILER, lines
