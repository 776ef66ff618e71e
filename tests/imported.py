"""Which modules of ours a file imports, read from its text."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# The folders that hold modules of ours, in the order of pyproject.toml.
PACKAGES = ("fusion", "partition", "placement", "backends", "tuning", "bench")


def modules(root: Path, packages: Iterable[str] = PACKAGES) -> dict[str, Path]:
    """Return every module of `packages` by its dotted name."""
    paths = (path for package in packages for path in (root / package).rglob("*.py"))
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(path: Path, known: Mapping[str, object]) -> set[str]:
    """Return the modules among `known` that a file imports, inside functions too."""
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


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes of a module but those under `if TYPE_CHECKING:`, which never run."""
    for node in ast.iter_child_nodes(tree):
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
            yield node
            yield from runtime_nodes(node)
