"""The functions and classes of the sources, and which of them each call is of, read from their text alone."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Signature:
    """What a function of the sources takes, or the constructor of a class.

    Attributes:
        name: Its own, behind that of its class.
        line: Where it is.
        positional: Parameters that calls may pass by position, without the object itself.
        takes_any: Whether it takes any number of them.
        is_data: Whether it is the constructor that a dataclass has of its fields.
        bases: Classes whose fields come before those.
    """

    name: str
    line: int
    positional: tuple[str, ...]
    takes_any: bool = False
    is_data: bool = False
    bases: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Source:
    """One file."""

    path: Path
    module: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """All of the tree."""
        return list(ast.walk(self.tree))

    @property
    def classes(self) -> list[ast.ClassDef]:
        """Those of the tree."""
        return [node for node in self.nodes if isinstance(node, ast.ClassDef)]

    @cached_property
    def defined(self) -> Mapping[str, Signature]:
        """What its functions, classes and methods take, these as "Class.method"."""
        found: dict[str, Signature] = {}
        for node in self.tree.body:
            if isinstance(node, Function):
                found[node.name] = _of_function(node, "")
            elif isinstance(node, ast.ClassDef):
                own = {each.name: _of_function(each, node.name) for each in node.body if isinstance(each, Function)}
                found.update({f"{node.name}.{name}": signature for name, signature in own.items()})
                if _decorator(node, "dataclass") is not None:
                    names = tuple(name for name, _ in fields_of(node))
                    found[node.name] = Signature(node.name, node.lineno, names, is_data=True, bases=_bases(node))
                elif "__init__" in own:
                    found[node.name] = own["__init__"]
        return found

    @cached_property
    def imported(self) -> Mapping[str, tuple[str, str]]:
        """The module and the name there of each name that is imported from one."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in self.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }


class Sources:
    """All files."""

    def __init__(self, root: Path, paths: Iterable[Path]) -> None:
        self.files = [Source(path, _module(path.relative_to(root))) for path in paths]
        self._of_module = {source.module: source for source in self.files}

    def calls(self, source: Source) -> Iterator[tuple[ast.Call, Signature]]:
        """Yield each call in `source` of something in the files, with what that takes."""
        for owner, call in _calls(source.tree, ""):
            signature = self._called(source, owner, call.func)
            if signature is not None:
                yield call, signature

    def _called(self, source: Source, owner: str, func: ast.expr) -> Signature | None:
        if isinstance(func, ast.Name):
            return self._named(source, owner if func.id == "cls" else func.id)
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name):
            base = owner if func.value.id in ("self", "cls") else func.value.id
            return self._named(source, f"{base}.{func.attr}")
        return None

    def _named(self, source: Source, name: str) -> Signature | None:
        if name in source.defined:
            found = source.defined[name]
            bases = [base for each in found.bases if (base := self._named(source, each)) is not None and base.is_data]
            inherited = (field for base in bases for field in base.positional)
            return replace(found, positional=tuple(dict.fromkeys((*inherited, *found.positional))), bases=())
        first, *rest = name.split(".")
        module, original = source.imported.get(first, ("", ""))
        inside, whole = self._of_module.get(f"{module}.{original}"), self._of_module.get(module)
        if inside is not None and rest:  # `from package import module`
            return self._named(inside, ".".join(rest))
        return self._named(whole, ".".join([original, *rest])) if whole is not None and whole is not source else None


def fields_of(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Yield name and annotation of each field of a dataclass."""
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            yield each.target.id, ast.unparse(each.annotation)


def is_frozen(node: ast.ClassDef) -> bool:
    """Return whether a class is a dataclass whose fields are not to change."""
    decorator = _decorator(node, "dataclass")
    return isinstance(decorator, ast.Call) and any(
        word.arg == "frozen" and ast.unparse(word.value) == "True" for word in decorator.keywords
    )


def closures(node: ast.AST) -> int:
    """Return how deep functions are nested in `node`, lambdas left out."""
    return max((closures(each) + isinstance(each, Function) for each in ast.iter_child_nodes(node)), default=0)


def _decorator(node: ast.ClassDef, name: str) -> ast.expr | None:
    return next((each for each in node.decorator_list if ast.unparse(each).split("(")[0] == name), None)


def _bases(node: ast.ClassDef) -> tuple[str, ...]:
    return tuple(ast.unparse(base).split("[")[0] for base in node.bases)


def _of_function(node: Function, owner: str) -> Signature:
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    is_bound = owner and not any(ast.unparse(each) == "staticmethod" for each in node.decorator_list)
    own = tuple(names[1:] if is_bound else names)
    return Signature(f"{owner}.{node.name}".strip("."), node.lineno, own, node.args.vararg is not None)


def _calls(node: ast.AST, owner: str) -> Iterator[tuple[str, ast.Call]]:
    for each in ast.iter_child_nodes(node):
        if isinstance(each, ast.Call):
            yield owner, each
        yield from _calls(each, each.name if isinstance(each, ast.ClassDef) else owner)


def _module(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
