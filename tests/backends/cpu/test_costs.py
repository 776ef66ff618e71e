"""The table of the CPU's costs: each number says where it is from and has a reader, and none stands elsewhere."""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.cpu import costs

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "backends" / "cpu" / "costs.py"
ANNOTATIONS = typing.get_type_hints(costs, include_extras=True)
COST_NAME = re.compile(r"(^|_)(CYCLES?|GHZ|LATENCY|COSTS?|MARGIN|OVERHEAD|OPERATIONS|LAUNCH|LINE|BANDWIDTH)(_|$)")
COST_TEXT = re.compile(r"\bcycles?\b|\bGHz\b|\bGB/s\b|\bas long as starting\b|\bwhat .* start\b", re.IGNORECASE)
ELSEWHERE = {
    "backends/tensorir/inlining.py": "operations, as any machine with vectors counts them",
    "backends/tensorir/legalize/scatters.py": "a legalization, which knows no machine",
    "backends/cpu/limits.py": "how the machine is measured",
    "fusion/guards/kernel.py": "checks that frontends write before there is a machine",
    "fusion/module/input_slot.py": "copies at run time, of any machine",
}


def sources() -> Iterator[Path]:
    for folder in ("backends", "fusion", "partition", "tuning"):
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if path != TABLE)


def numbers(tree: ast.Module, lines: list[str]) -> Iterator[tuple[str, str]]:
    """Yield name and description of each number that a module names."""
    for statement, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            name, value = statement.targets[0].id, statement.value
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
            name, value = statement.target.id, statement.value
        else:
            continue
        if any(isinstance(node, ast.Name | ast.Call | ast.Attribute) for node in ast.walk(value)):
            continue
        if not any(isinstance(node, ast.Constant) and type(node.value) in (int, float) for node in ast.walk(value)):
            continue
        text = " ".join(lines[statement.lineno - 1 : statement.end_lineno]).partition("#")[2]
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text += str(after.value.value)
        yield name, text


def strays(source: str) -> list[str]:
    """Return the numbers of a module that are costs, by their names or by what is said of them."""
    found = numbers(ast.parse(source), source.split("\n"))
    return [name for name, text in found if COST_NAME.search(name) or COST_TEXT.search(text)]


def test_costs_stand_nowhere_else() -> None:
    named = {str(path.relative_to(ROOT)): strays(path.read_text(encoding="utf-8")) for path in sources()}
    found = {file: names for file, names in named.items() if names}
    assert {file: names for file, names in found.items() if file not in ELSEWHERE} == {}
    assert set(found) == set(ELSEWHERE), "a file has none any more"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("_START_CYCLES = 8_000", ["_START_CYCLES"]),
        ("_BLOCK = 20  # cycles to begin a block", ["_BLOCK"]),
        ('_CALL = 64 << 10\n"""Bytes that move in the 10,000 cycles that a call takes."""', ["_CALL"]),
        ("_PAIR: float = 4.0  # what they start in", ["_PAIR"]),
        ("_MOST = 8  # points that are measured", []),
        ("CYCLES = LAUNCH_CYCLES * 2", []),
    ],
)
def test_costs_elsewhere_are_found(source: str, names: list[str]) -> None:
    assert strays(source) == names


def test_each_number_says_where_it_is_from() -> None:
    assert {name for name in vars(costs) if name.isupper()} - set(ANNOTATIONS) == {
        "ZEN4", "WHOLE_UNITS", "EITHER", "SOME", "VENDORS", "NOT_TOLD",
    }  # fmt: skip
    for name, annotation in ANNOTATIONS.items():
        (cost,) = annotation.__metadata__
        assert all((cost.unit, cost.source, cost.machine)), name


def test_each_number_is_read() -> None:
    readers = (path for path in sources() if path.is_relative_to(TABLE.parent))
    read, own = " ".join(path.read_text(encoding="utf-8") for path in readers), TABLE.read_text(encoding="utf-8")
    unread = [name for name in ANNOTATIONS if not re.search(rf"\b{name}\b", read) and own.count(name) < 2]
    assert unread == []


def test_one_start_of_a_kernel_in_two_units() -> None:
    assert costs.LAUNCH_BYTES == costs.LAUNCH_CYCLES * costs.MEMORY_BYTES_PER_CYCLE
