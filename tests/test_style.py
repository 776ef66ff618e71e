"""The style budget: small functions and files, pages that can be read, no code run from data, no machine's paths."""

from __future__ import annotations

import ast
import re
import statistics
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion.system.collector import paused

ROOT = Path(__file__).parents[1]
PACKAGES = ("fusion", "partition", "placement", "backends", "tuning", "bench")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
TEXTS = [
    *SOURCES,
    *sorted((ROOT / "tests").rglob("*.py")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(ROOT.glob("*.md")),
    *(ROOT / name for name in (".pre-commit-config.yaml", "pyproject.toml", "Makefile", ".ci/run")),
]
# Lines: nine functions of ten, all but one of a hundred, any function; the middle file, any file.
FUNCTION_P90, FUNCTION_P99, FUNCTION_MAX = 30, 80, 120
FILE_MEDIAN, FILE_MAX = 200, 600
DOCS = ROOT / "docs"
# Pages that were written before these rules and do not keep them yet; a page that is made readable leaves the list.
DENSE = {"rewrites.md", "spaces.md"}  # `make tables` writes them.
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
LINE, PARAGRAPH, CELL = 120, 8, 100  # Characters, lines, characters without where links lead.
MACHINE_PATH = re.compile(r"(?<![\w.~}-])/(?:work|root|tmp|home)/\w")
REGISTRY = re.compile(r"(?:pypi|files\.pythonhosted|download\.pytorch)\.org/(?:simple|whl)")


@pytest.fixture(scope="module")
def trees() -> Iterator[dict[Path, ast.Module]]:
    """The sources, read once, and no garbage looked for among their objects."""
    with paused():
        yield {path: ast.parse(path.read_text()) for path in SOURCES}


def functions(path: Path, tree: ast.Module) -> Iterator[tuple[str, int]]:
    """Yield the place and the number of lines of each function in a file, docstring included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            yield f"{path.relative_to(ROOT)}:{node.lineno} {node.name}", lines


def longest(sizes: dict[str, int], limit: int) -> str:
    """Return the places over the limit, the longest first."""
    over = sorted((item for item in sizes.items() if item[1] > limit), key=lambda item: -item[1])
    return "\n".join(f"{lines:4} {place}" for place, lines in over[:30])


@pytest.fixture(scope="module")
def function_sizes(trees: dict[Path, ast.Module]) -> dict[str, int]:
    return {place: lines for path, tree in trees.items() for place, lines in functions(path, tree)}


@pytest.fixture(scope="module")
def file_sizes() -> dict[str, int]:
    sizes = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in SOURCES}
    return {path: lines for path, lines in sizes.items() if lines}


@pytest.mark.parametrize(("percentile", "limit"), [(90, FUNCTION_P90), (99, FUNCTION_P99)])
def test_functions_are_short(function_sizes: dict[str, int], percentile: int, limit: int) -> None:
    cut = statistics.quantiles(function_sizes.values(), n=100, method="inclusive")[percentile - 1]
    assert cut <= limit, longest(function_sizes, limit)


def test_no_function_is_huge(function_sizes: dict[str, int]) -> None:
    assert not longest(function_sizes, FUNCTION_MAX)


def test_files_are_short(file_sizes: dict[str, int]) -> None:
    assert statistics.median(file_sizes.values()) <= FILE_MEDIAN
    assert not longest(file_sizes, FILE_MAX)


def unsafe(node: ast.AST) -> str | None:
    """Return what in a call runs code that data may carry, or None."""
    if not isinstance(node, ast.Call):
        return None
    name = ast.unparse(node.func)
    if name in {"eval", "exec", "os.system"} or re.fullmatch(r"(?:c?pickle|dill|joblib|marshal)\.loads?", name):
        return name
    keywords = {word.arg: word.value for word in node.keywords}
    for option in ("shell", "allow_pickle"):
        value = keywords.get(option)
        if isinstance(value, ast.Constant) and value.value is True:
            return f"{name}({option}=True)"
    return None


@pytest.mark.parametrize("code", ["eval(x)", "pickle.load(f)", "subprocess.run(c, shell=True)"])
def test_unsafe_calls_are_seen(code: str) -> None:
    assert any(unsafe(node) for node in ast.walk(ast.parse(code)))


def test_no_code_runs_from_data(trees: dict[Path, ast.Module]) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} {call}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if (call := unsafe(node))
    ]
    assert not found


def test_sources_name_no_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number} {line.strip()}"
        for path in TEXTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE_PATH.search(line) or REGISTRY.search(line)
    ]
    assert not found


def class_names(tree: ast.Module) -> list[str]:
    """Return the names of the public classes that a file defines for others."""
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


def test_every_class_has_a_name_of_its_own(trees: dict[Path, ast.Module]) -> None:
    places: dict[str, list[str]] = {}
    for path, tree in trees.items():
        for name in class_names(tree):
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert not {name: files for name, files in places.items() if len(files) > 1}


def test_every_file_of_tests_has_a_name_of_its_own() -> None:
    """pytest imports them by their names, and collects none of two that share one."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert not [name for name, many in names.items() if many > 1]


def test_private_state_is_no_argument(trees: dict[Path, ast.Module]) -> None:
    """A field of a dataclass whose name is private and that has a default says `init=False`."""
    found = [
        f"{path.relative_to(ROOT)}:{field.lineno} {field.target.id}"
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in node.decorator_list)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if field.target.id.startswith("_")
        and "init=False" not in ast.unparse(field)
        and "ClassVar" not in ast.unparse(field)
    ]
    assert not found


def hard_to_read(text: str) -> Iterator[str]:
    """Yield what breaks a rule in a page, with the number of its line; code is left out."""
    fenced, lines = False, 0
    for number, line in enumerate([*text.splitlines(), ""], 1):
        fenced ^= line.startswith("```")
        begins = re.match(r"\s*([-*]|\d+\.) ", line)
        prose = line.strip() and not fenced and not line.startswith(("|", "#", "```"))
        if not prose or begins:
            if lines > PARAGRAPH:
                yield f"{number - 1}: a paragraph of {lines} lines"
            lines = 0
        lines += bool(prose)
        if prose and len(line) > LINE:
            yield f"{number}: a line of {len(line)} characters"
        if line.startswith("|") and not fenced:
            yield from (f"{number}: a cell of {len(cell)} characters" for cell in cells(line) if len(cell) > CELL)


def cells(row: str) -> list[str]:
    """Return the cells of a table's row as a reader sees them."""
    return [re.sub(r"\]\([^)]*\)", "]", cell).strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in DENSE])
def test_pages_can_be_read(page: str) -> None:
    assert not list(hard_to_read((DOCS / page).read_text()))


def test_dense_pages_are_there() -> None:
    assert not DENSE - set(PAGES)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("word " * 25, "1: a line of 125 characters"),
        ("- item\n" + "  more\n" * 8, "9: a paragraph of 9 lines"),
        ("a line\n" * 8 + "\n" + "- item\n" * 20, None),
        (f"| {'x' * 101} | y |", "1: a cell of 101 characters"),
        (f"| [page]({'x' * 101}) | {'y' * 100} |", None),
        ("```\n" + f"{'x' * 121}\n" * 9 + "```", None),
    ],
)
def test_rules_find_what_breaks_them(text: str, found: str | None) -> None:
    assert list(hard_to_read(text)) == ([found] if found else [])
