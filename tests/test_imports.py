"""Imports form no circle, file by file; import-linter checks the layers of folders."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("fusion", "partition", "backends", "tuning", "bench")


def modules() -> dict[str, Path]:
    """Return every module of ours by its dotted name."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a module but those under `if TYPE_CHECKING:`, which never run."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from runtime_nodes(node)


def imported(path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of ours that a file imports, inside functions too."""
    found: set[str] = set()
    for node in runtime_nodes(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            # `from package import name` needs the module `package.name` where there is one, else the package.
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in known else node.module)
    return found & known.keys()


def test_no_file_imports_itself_in_a_circle() -> None:
    known = modules()
    graph = {name: imported(path, known) - {name} for name, path in known.items()}
    try:
        order = list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
    assert set(order) == set(known)
