"""The example kernels of each family, and calls that its lowerings decline: `EXAMPLES` and `NEAR_MISSES` of the
`example.py` in its folder of the tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax, tirx

from backends.cpu import kernels
from backends.cpu.kernels.template import Template
from tests.backends.cpu.kernels.anchored import normal
from tests.passes.modules import Build

FAMILIES = Path(kernels.__file__).parent


@dataclass(frozen=True)
class Example:
    """A graph of which one kernel is the family's; others may be of other families.

    Attributes:
        shape: Of its one input.
        has_estimates: Whether the points of the space tell how many cycles they take.
    """

    build: Build
    shape: tuple[int, ...]
    has_estimates: bool = True

    def data(self) -> np.ndarray:
        """Return numbers for the input."""
        return normal(self.shape, 0)


@dataclass(frozen=True)
class KernelExample:
    """A kernel that no graph of operators becomes: points of its space are run by the tests of its family.

    Attributes:
        func: Makes it.
        text: What it computes.
    """

    func: Callable[[], tirx.PrimFunc]
    text: str


@dataclass(frozen=True)
class NearMiss:
    """A graph with a call of the form that the family computes, which its lowering declines.

    Attributes:
        shape: Of its one input.
        reason: That the lowering gives.
    """

    build: Build
    shape: tuple[int, ...]
    reason: str


def folder_of(template: Template[Any, Any]) -> str:
    """Return the name of the folder that has `template`."""
    folders = sorted(path.parent.name for path in FAMILIES.glob("*/__init__.py"))
    return next(folder for folder in folders if _exported(folder) is template)


def examples_of(template: Template[Any, Any]) -> Sequence[Example | KernelExample]:
    """Return the examples of the family, that of the docs first.

    Raises:
        AssertionError: It has none.
    """
    return _given(template, "EXAMPLES")


def near_misses_of(template: Template[Any, Any]) -> Sequence[NearMiss]:
    """Return what the lowerings of the family decline.

    Raises:
        AssertionError: It has lowerings, and no such call.
    """
    return _given(template, "NEAR_MISSES") if template.lowerings else ()


def _given(template: Template[Any, Any], name: str) -> Sequence[Any]:
    here, folder = __package__, folder_of(template)
    wanted = f"{here.replace('.', '/')}/{folder}/example.py"
    assert (Path(__file__).parent / folder / "example.py").exists(), f"the family {template.name} needs {wanted}"
    given = getattr(import_module(f"{here}.{folder}.example"), name, ())
    assert given, f"{wanted} needs {name}, a tuple of them"
    return given


def convolution(
    groups: int, depth: int, out: int, kernel: int, *, by_planes: bool = False, layout: str = "NHWC"
) -> Build:
    """Return a convolution and a relu, of images stored channels-last or brought there from `by_planes`."""
    weight = normal((out, depth, kernel, kernel), 1) / np.float32(kernel * depth**0.5)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        image = b.emit(relax.op.permute_dims(x, [0, 2, 3, 1])) if by_planes else x
        made = relax.op.nn.conv2d(image, relax.const(weight), 1, kernel // 2, groups=groups, data_layout=layout)
        return relax.op.nn.relu(made)

    return build


def computed(*shape: int) -> relax.Expr:
    """Return weights that are no constant."""
    return relax.op.zeros(shape, "float32")


def _exported(folder: str) -> Any:
    return getattr(import_module(f"{kernels.__name__}.{folder}"), "TEMPLATE", None)
