"""The tables of the CPU's costs: each number says where it is from and has a reader, and none stands elsewhere."""

from __future__ import annotations

import ast
import re
import typing
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from backends.cpu import costs

ROOT = Path(__file__).parents[3]
CPU = Path(costs.__file__).parent
SOURCES = {"ZEN4", "SKYLAKE", "WHOLE_UNITS", "EITHER", "SOME", "VENDORS", "NOT_TOLD"}
FAMILIES = {path.parent.name: path for path in sorted(CPU.glob("kernels/*/costs.py"))}
TABLES = {
    CPU / "costs.py": costs,
    **{path: import_module(f"backends.cpu.kernels.{family}.costs") for family, path in FAMILIES.items()},
}
COST_NAME = re.compile(r"(^|_)(CYCLES?|GHZ|LATENCY|COSTS?|MARGIN|OVERHEAD|OPERATIONS|LAUNCH|LINE|BANDWIDTH)(_|$)")
COST_TEXT = re.compile(r"\bcycles?\b|\bGHz\b|\bGB/s\b|\bas long as starting\b|\bwhat .* start\b", re.IGNORECASE)
ELSEWHERE = {
    "backends/tensorir/inlining.py": "operations, as any machine with vectors counts them",
    "backends/tensorir/legalize/scatters.py": "a legalization, which knows no machine",
    "backends/cuda/legalize/scatters.py": "a legalization, which knows no device",
    "backends/cpu/limits.py": "how the machine is measured",
    "fusion/frontends/torch/experts.py": "a decomposition of torch's, which is made before there is a machine",
    "fusion/guards/kernel.py": "checks that frontends write before there is a machine",
    "fusion/passes/tabulate_bytes.py": "operations, as any machine with vectors counts them",
    "fusion/module/input_slot.py": "copies at run time, of any machine",
}


def sources() -> Iterator[Path]:
    for folder in ("backends", "fusion", "partition", "tuning"):
        yield from (path for path in sorted((ROOT / folder).rglob("*.py")) if path not in TABLES)


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


def numbers_of(table: ModuleType) -> dict[str, typing.Any]:
    """Return the annotation of each number that a table has."""
    return typing.get_type_hints(table, include_extras=True)


def readers(name: str) -> set[str]:
    """Return the folders in which files of the CPU read a number, those below a family or `shared/` as one."""
    found = {path for path, words in words_of_the_cpu().items() if name in words}
    return {str(Path(*path.relative_to(CPU).parts[:2]) if "kernels" in path.parts else CPU.name) for path in found}


@cache
def words_of_the_cpu() -> dict[Path, set[str]]:
    """Return the words of each file."""
    files = (path for path in sources() if path.is_relative_to(CPU))
    return {path: set(re.findall(r"\w+", path.read_text(encoding="utf-8"))) for path in files}


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.__name__)
def test_each_number_says_where_it_is_from(table: ModuleType) -> None:
    annotations = numbers_of(table)
    assert annotations
    others = {name for name in vars(table) if name.isupper()} - set(annotations)
    assert others == SOURCES if table is costs else others < SOURCES
    for name, annotation in annotations.items():
        (cost,) = annotation.__metadata__
        assert all((cost.unit, cost.source, cost.machine)), name


@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.parent.name)
def test_each_number_is_described_by_a_sentence_of_its_own(path: Path) -> None:
    """One that says what it is of: no "Of ...", "The same ..." or "More ...", which need the number before."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    for number, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(number, ast.AnnAssign):
            assert isinstance(after, ast.Expr), ast.unparse(number.target)
            assert re.match("(?!The same)(The|What|How) ", ast.literal_eval(after.value)), ast.unparse(number.target)


def test_each_number_is_read() -> None:
    own = (CPU / "costs.py").read_text(encoding="utf-8")
    assert [name for name in numbers_of(costs) if own.count(name) < 2 and not readers(name)] == []


def test_a_number_stands_with_those_who_read_it() -> None:
    """One that a single family reads is in the table of that family, which is removed with it."""
    own = (CPU / "costs.py").read_text(encoding="utf-8")
    shared = {name: readers(name) for name in numbers_of(costs) if own.count(name) < 2}
    alone = {name: found for name, found in shared.items() if len(found) == 1}
    assert {name for name, (folder,) in alone.items() if folder not in (CPU.name, "kernels/shared")} == set()
    for family, path in FAMILIES.items():
        assert {name: readers(name) for name in numbers_of(TABLES[path])} == {
            name: {f"kernels/{family}"} for name in numbers_of(TABLES[path])
        }


def test_one_start_of_a_kernel_in_two_units() -> None:
    assert costs.LAUNCH_BYTES == costs.LAUNCH_CYCLES * costs.MEMORY_BYTES_PER_CYCLE
