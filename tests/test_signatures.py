"""Names instead of positions: how many values functions take and calls pass without saying which is which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion.system.collector import paused
from tests.signatures import Function, Source, Sources, closures, fields_of, is_frozen
from tests.test_style import ROOT, SOURCES

PARAMETERS, POSITIONAL, RESULTS, CLOSURES = 7, 5, 3, 2
OF_TORCH = "fusion/frontends/torch/"
"""What stands for torch's operators has their parameters."""
CHANGE = ("list", "dict", "set", "Counter", "defaultdict", "deque")
"""Types whose values change."""


@pytest.fixture(scope="module")
def sources() -> Iterator[Sources]:
    with paused():  # trees are thousands of objects, among which is no garbage
        yield Sources(ROOT, SOURCES)


def place(source: Source, node: ast.stmt | ast.expr) -> str:
    return f"{source.path.relative_to(ROOT)}:{node.lineno}"


def functions(sources: Sources) -> Iterator[tuple[str, Function]]:
    """Yield the functions with their places."""
    for source in sources.files:
        for node in source.nodes:
            if isinstance(node, Function):
                yield f"{place(source, node)} {node.name}", node


def parameters(node: Function) -> int:
    """Return how many values calls may pass by position, without the object itself."""
    names = [each.arg for each in (*node.args.posonlyargs, *node.args.args)]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def unnamed(node: Function) -> int:
    """Return how many results of different meanings a function returns without names."""
    returned = node.returns
    if not isinstance(returned, ast.Subscript) or ast.unparse(returned.value) != "tuple":
        return 0
    return len(returned.slice.elts) if isinstance(returned.slice, ast.Tuple) else 1


def test_functions_take_few_values(sources: Sources) -> None:
    assert not [
        f"{where} takes {parameters(node)}"
        for where, node in functions(sources)
        if parameters(node) > PARAMETERS and not where.startswith(OF_TORCH)
    ]


def test_calls_name_what_they_pass(sources: Sources) -> None:
    assert not [
        f"{place(source, call)} passes {len(call.args)} to {signature.name}"
        for source in sources.files
        for call, signature in sources.calls(source)
        if not signature.takes_any and len(call.args) > POSITIONAL
    ]


def test_results_have_names(sources: Sources) -> None:
    assert not [
        f"{where} returns {unnamed(node)}"
        for where, node in functions(sources)
        if unnamed(node) > RESULTS and not where.startswith(OF_TORCH)
    ]


def test_operands_have_names(sources: Sources) -> None:
    """`operand(call, "weight")`, `value.data`, or `left, right = call.args`."""
    named = ("fusion/bindings.py", "fusion/rewrites/graph.py", OF_TORCH)
    assert not [
        f"{place(source, node)} {ast.unparse(node)}"
        for source in sources.files
        if not str(source.path.relative_to(ROOT)).startswith(named)
        for node in source.nodes
        if isinstance(node, ast.Subscript)
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "args"
        and isinstance(node.slice, ast.Constant)
    ]


def test_functions_are_not_nested_deep(sources: Sources) -> None:
    outer = ((source, node) for source in sources.files for node in (source.tree, *source.classes))
    assert not [
        f"{place(source, each)} {each.name}"
        for source, node in outer
        for each in node.body
        if isinstance(each, Function) and closures(each) > CLOSURES
    ]


def test_frozen_dataclasses_hold_nothing_that_changes(sources: Sources) -> None:
    assert not [
        f"{place(source, node)} {node.name}.{name}: {kind}"
        for source in sources.files
        for node in source.nodes
        if isinstance(node, ast.ClassDef) and is_frozen(node)
        for name, kind in fields_of(node)
        if kind.split("[")[0] in CHANGE
    ]


def test_what_calls_are_of_is_found(tmp_path: Path) -> None:
    """In the file itself, in another, inherited, behind `self`, and through a package."""
    texts = {
        "package/__init__.py": "from package.first import Pair as Pair\n",
        "package/first.py": (
            "@dataclass(frozen=True)\nclass Pair:\n    a: int\n    b: int\n\n"
            "    def join(self, x, y): ...\n\n    def twice(self):\n        return self.join(1, 2)\n"
        ),
        "package/second.py": (
            "from package import Pair, first\n\n@dataclass\nclass Three(Pair):\n    c: int\n\n"
            "def make(*rest):\n    return Three(1, 2, 3), Pair(1, 2), first.Pair(1, 2), make(1), print(1)\n"
        ),
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    sources = Sources(tmp_path, [tmp_path / name for name in texts])
    found = [(signature.name, signature.positional) for each in sources.files for _, signature in sources.calls(each)]
    assert found == [
        ("Pair.join", ("x", "y")),
        ("Three", ("a", "b", "c")),
        ("Pair", ("a", "b")),
        ("Pair", ("a", "b")),
        ("make", ()),
    ]
