"""docs/spaces.md: what the template of each family leaves open, counted for one kernel of it."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from backends.cpu import kernels as families
from backends.cpu.kernels.priority import TEMPLATES
from backends.cpu.kernels.template import Template
from backends.cpu.machine import Machine
from backends.cpu.schedule import read_choices
from tests.tables.kernels import kernel_of

_MACHINE, _THREADS = Machine(16, 32, 32 << 10, 1 << 20, 16 << 20, dot_pairs=True), 2
_FEW = 8
"""Values of an axis that are listed one by one."""

_HEAD = f"""\
# Spaces of the CPU's kernels

Written by `python -m tests.tables` from the templates in `backends/cpu/kernels/priority.py`, in the order in which they
are asked; [what a space is and how a point is chosen](design/spaces.md). Sizes and choices are those of one kernel, the
first example of the family's tests (`tests/backends/cpu/kernels/FAMILY/example.py`), of which they run points, on
{_THREADS} threads of a CPU with {_MACHINE.vector_lanes} lanes, {_MACHINE.vector_registers} registers and caches of
32 KiB, 1 MiB and 16 MiB. Guards are the reasons for which a family declines a kernel of its kind, beside those of the
readers that families share (`backends/tensorir/`, `kernels/shared/`).
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for template in TEMPLATES for line in _section(template))])


def _section(template: Template[Any, Any]) -> Iterator[str]:
    package = _package_of(template)
    func, example = kernel_of(template)
    choices = read_choices(func, _MACHINE, _THREADS)
    assert choices is not None, template.name
    points = list(choices.space)
    yield f"## {template.name}"
    yield f"{inspect.getdoc(package)} In `{package.__name__.replace('.', '/')}/`."
    yield ""
    yield f"Example: {example}. Size: {len(points)}. Default: `{choices.space.default}`."
    yield ""
    yield "| point | axis | what it is | choices |"
    yield "|---|---|---|---|"
    for kind in dict.fromkeys(type(point) for point in points):
        yield from _axes(kind, [point for point in points if type(point) is kind])
    reasons = sorted(set(_reasons(Path(str(package.__file__)).parent)))
    if reasons:
        yield ""
        yield "Guards:"
        yield from (f"- {reason}" for reason in reasons)
    yield ""


def _package_of(template: Template[Any, Any]) -> Any:
    folders = Path(str(families.__file__)).parent.glob("*/__init__.py")
    packages = (import_module(f"{families.__name__}.{path.parent.name}") for path in sorted(folders))
    return next(package for package in packages if getattr(package, "TEMPLATE", None) is template)


def _axes(kind: type, points: Sequence[Any]) -> Iterator[str]:
    texts = _attributes(kind)
    for field in fields(kind):
        if field.name != "cycles":
            values = list(dict.fromkeys(getattr(point, field.name) for point in points))
            yield f"| `{kind.__name__}` | {field.name} | {texts[field.name]} | {_choices(values)} |"


def _attributes(kind: type) -> dict[str, str]:
    """Return what the docstring of a dataclass says of its fields."""
    text = (inspect.getdoc(kind) or "").partition("Attributes:\n")[2]
    found = re.findall(r"^    ([\w, ]+): (.*(?:\n     .*)*)", text, re.MULTILINE)
    return {name: re.sub(r"\s+", " ", said) for names, said in found for name in names.split(", ")}


def _choices(values: Sequence[Any]) -> str:
    """Return the values of an axis: all where they are few, how many and how far they go where they are not."""
    if all(value is None or is_dataclass(value) for value in values):
        return _parts([value for value in values if value is not None]) + (" or none" if None in values else "")
    if len(values) <= _FEW:
        return ", ".join(map(str, sorted(values)))
    return f"{len(values)}, {min(values)} to {max(values)}"


def _parts(values: Sequence[Any]) -> str:
    """Return how many there are of an axis that has fields of its own, and how far those go."""
    names = [field.name for field in fields(values[0]) if type(getattr(values[0], field.name)) is int] if values else []
    return ", ".join([str(len(values)), *(_range(name, [getattr(each, name) for each in values]) for name in names)])


def _range(name: str, values: Sequence[int]) -> str:
    return f"{name} {min(values)}" + (f" to {max(values)}" if max(values) > min(values) else "")


def _reasons(folder: Path) -> Iterator[str]:
    """Yield the reasons for which files of a family decline kernels or leave them in parts."""
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                if ast.unparse(node.exc.func) == "Declined":
                    yield _words(node.exc.args[0])
            elif isinstance(node, ast.FunctionDef) and node.name.startswith("why_not"):
                returned = (each.value for each in ast.walk(node) if isinstance(each, ast.Return))
                yield from (_words(value) for value in returned if _is_text(value))


def _is_text(value: ast.expr | None) -> bool:
    return isinstance(value, ast.JoinedStr) or (isinstance(value, ast.Constant) and bool(value.value))


def _words(value: ast.expr | None) -> str:
    """Return a reason as it is written, names in place of what is put in."""
    if isinstance(value, ast.JoinedStr):
        return "".join(map(_words, value.values))
    if isinstance(value, ast.FormattedValue):
        return f"`{ast.unparse(value.value)}`"
    return str(value.value) if isinstance(value, ast.Constant) else ""
