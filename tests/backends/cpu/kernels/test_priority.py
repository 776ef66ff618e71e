"""Every family is a folder of the same form, and in the one list."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from backends.cpu import kernels
from backends.cpu.kernels import fallback_loops, priority
from backends.cpu.kernels.template import Lower, Marks, Template
from backends.cpu.lowerings import lowerings
from tests.backends.cpu.kernels import examples
from tests.backends.cpu.kernels.anchored import always, groups, one_kernel
from tests.backends.cpu.kernels.examples import Example, KernelExample, examples_of
from tests.imported import PACKAGES, imported, modules

ROOT = Path(__file__).parents[4]
FOLDER = Path(kernels.__file__).parent
FAMILIES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py") if path.parent.name != "shared")


def _is_always_there(family: str) -> bool:
    return family == fallback_loops.__name__.rpartition(".")[2]


def test_every_family_is_in_the_list_once() -> None:
    exported = [import_module(f"{kernels.__name__}.{family}").TEMPLATE for family in FAMILIES]
    assert len(priority.TEMPLATES) == len(exported)
    assert all(any(template is each for each in priority.TEMPLATES) for template in exported)
    assert len({template.name for template in exported}) == len(exported)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_has_the_files_that_its_template_needs(family: str) -> None:
    template = import_module(f"{kernels.__name__}.{family}").TEMPLATE
    files = {path.stem for path in (FOLDER / family).glob("*.py")}
    assert {"__init__", "plan", "emit"} <= files
    assert ("lower" in files) == bool(template.lowerings)
    assert all(lower.write.__module__.endswith(f".{family}.lower") for lower in template.lowerings.values())


@pytest.mark.parametrize("family", [name for name in FAMILIES if not _is_always_there(name)])
def test_only_its_own_tests_import_a_family(family: str) -> None:
    """Else those that do would fail when it is removed; an import contract says the same of the compiler."""
    package = f"{kernels.__name__}.{family}"
    own = (f"{package}.", f"tests.{package}.")
    readers = {test for test, names in imports_of_tests().items() if any(f"{name}.".startswith(own) for name in names)}
    assert all(test.startswith(own) for test in readers)


@cache
def imports_of_tests() -> dict[str, set[str]]:
    """Return what each file of the tests that names the package of the families imports of ours."""
    known = modules(ROOT, (*PACKAGES, "tests"))
    tests = {name: path for name, path in known.items() if name.startswith("tests.")}
    return {name: imported(path, known) for name, path in tests.items() if kernels.__name__ in path.read_text()}


def test_those_that_take_any_kernel_are_last() -> None:
    names = [template.name for template in priority.TEMPLATES if template.claims is None]
    assert names == [template.name for template in priority.TEMPLATES][-len(names) :]
    assert names[-1] == fallback_loops.TEMPLATE.name


def test_lowerings_are_tried_in_the_order_of_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = Lower(lambda builder, call, lanes: call)
    operators = {"first": ("relax.sin",), "both": ("relax.cos", "relax.sin"), "last": ("relax.cos",)}
    these = (
        replace(fallback_loops.TEMPLATE, name=name, lowerings=dict.fromkeys(own, lower))
        for name, own in operators.items()
    )
    monkeypatch.setattr(priority, "TEMPLATES", tuple(these))
    tried = {operator: [lower.name for lower in found] for operator, found in lowerings(16).items()}
    assert tried == {"relax.sin": ["first", "both"], "relax.cos": ["both", "last"]}


def kernels_of(example: Example | KernelExample) -> list[tirx.PrimFunc]:
    if isinstance(example, KernelExample):
        return [example.func()]
    return groups(example.build, [example.data()], always)


@pytest.mark.parametrize("template", priority.TEMPLATES, ids=lambda template: template.name)
def test_a_family_takes_its_examples_first(template: Template[Any, Any]) -> None:
    """It claims a kernel of each, or where it claims none, nobody does; of several that would, the first has it."""
    for example in examples_of(template):
        takers = [list(priority.takers(func, Marks.of(func))) for func in kernels_of(example)]
        if template.claims is None:
            assert any(template in these for these in takers if these[0].claims is None)
        else:
            assert [these[0] for these in takers].count(template) == 1


def test_the_first_that_claims_a_kernel_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(name: str, claims: Callable[[Marks], bool] | None) -> Template[Any, Any]:
        return replace(fallback_loops.TEMPLATE, name=name, claims=claims)

    these = (named("none", lambda marks: False), named("one", lambda marks: True), named("two", lambda marks: True))
    monkeypatch.setattr(priority, "TEMPLATES", (*these, named("any", None), named("rest", None)))
    kernel = one_kernel(lambda b, x: relax.op.exp(x), [np.zeros((2, 3), "float32")])
    assert [each.name for each in priority.takers(kernel, Marks.of(kernel))] == ["one", "any", "rest"]


def test_an_empty_kernel_is_read() -> None:
    kernel = one_kernel(lambda b, x: relax.op.exp(x), [np.zeros((0, 3), "float32")])
    assert priority.recognise(kernel)[0].claims is None


@pytest.mark.parametrize("template", priority.TEMPLATES, ids=lambda template: template.name)
def test_a_family_has_an_example(template: Template[Any, Any]) -> None:
    assert examples_of(template)


def test_a_family_without_an_example_is_told_where_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "folder_of", lambda template: "no_such_family")
    with pytest.raises(AssertionError, match=r"needs tests/backends/cpu/kernels/no_such_family/example\.py"):
        examples_of(fallback_loops.TEMPLATE)
