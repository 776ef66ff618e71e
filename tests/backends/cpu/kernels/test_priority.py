"""Every family is a folder of the same form, and in the one list."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax

from backends.cpu import kernels
from backends.cpu.kernels import matmul, priority
from backends.cpu.kernels.template import Marks, Template
from backends.cpu.lowerings import lowerings
from tests.backends.cpu.kernels import examples
from tests.backends.cpu.kernels.anchored import normal, one_kernel
from tests.backends.cpu.kernels.examples import examples_of
from tests.passes.modules import Build

FOLDER = Path(kernels.__file__).parent
FAMILIES = sorted(path.parent.name for path in FOLDER.glob("*/__init__.py") if path.parent.name != "shared")
NHWC = {"data_layout": "NHWC", "kernel_layout": "OIHW"}


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


def test_those_that_take_any_kernel_are_last() -> None:
    names = [template.name for template in priority.TEMPLATES if template.claims is None]
    assert names == [template.name for template in priority.TEMPLATES][-len(names) :]
    assert names[-1] == "fallback_loops"


def test_lowerings_are_tried_in_the_order_of_the_list() -> None:
    tried = {operator: [lower.name for lower in found] for operator, found in lowerings(16).items()}
    assert tried["relax.matmul"] == ["matmul", "batch_matmul"]
    assert tried["relax.nn.conv2d"][-2:] == ["image_conv2d", "conv2d"]


def convolution(b: relax.BlockBuilder, x: relax.Expr, weight: tuple[int, ...], groups: int = 1) -> relax.Expr:
    values = relax.const(normal(weight, 1))
    return b.emit(relax.op.nn.conv2d(x, values, padding=weight[2] // 2, groups=groups, **NHWC))


def product(b: relax.BlockBuilder, x: relax.Expr, matrix: tuple[int, int]) -> relax.Expr:
    return b.emit(relax.op.matmul(x, relax.const(normal(matrix, 1))))


def scores_times_rows(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    scores = b.emit(relax.op.matmul(x, b.emit(relax.op.permute_dims(x, [0, 1, 3, 2]))))
    return relax.op.matmul(scores, x)


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("conv2d", lambda b, x: convolution(b, x, (24, 20, 3, 3))),
        ("matmul", lambda b, x: convolution(b, x, (24, 20, 1, 1))),
        ("depthwise_conv2d", lambda b, x: convolution(b, x, (20, 1, 3, 3), 20)),
        ("rolling_window", lambda b, x: convolution(b, convolution(b, x, (20, 20, 1, 1)), (20, 1, 3, 3), 20)),
        ("conv_chain", lambda b, x: convolution(b, convolution(b, x, (20, 20, 1, 1)), (20, 20, 3, 3))),
        ("matmul", lambda b, x: product(b, product(b, x, (20, 24)), (24, 8))),
        ("attention", scores_times_rows),
        ("", lambda b, x: relax.op.exp(x)),
    ],
)  # fmt: skip
def test_who_takes_a_kernel_first(name: str, build: Build) -> None:
    """One that claims it, or where none does, one that takes any."""
    kernel = one_kernel(build, [normal((1, 9, 10, 20), 0)])
    marks = Marks.of(kernel)
    first = next(priority.takers(kernel, marks))
    assert (first.name if first.claims else "") == name
    claiming = [t.name for t in priority.TEMPLATES if t.claims and t.claims(marks)]
    assert claiming[:1] == ([name] if name else [])


def test_an_empty_kernel_is_read() -> None:
    kernel = one_kernel(lambda b, x: relax.op.exp(x), [np.zeros((0, 3), "float32")])
    assert priority.recognise(kernel)[0].claims is None


@pytest.mark.parametrize("template", priority.TEMPLATES, ids=lambda template: template.name)
def test_a_family_has_an_example(template: Template[Any, Any]) -> None:
    assert examples_of(template)


def test_a_family_without_an_example_is_told_where_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examples, "folder_of", lambda template: "no_such_family")
    with pytest.raises(AssertionError, match=r"matmul needs tests/backends/cpu/kernels/no_such_family/example\.py"):
        examples_of(matmul.TEMPLATE)
