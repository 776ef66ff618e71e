"""The families of kernels, in the order in which they are asked: what scheduling, lowering and fusing go through."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx

from backends.cpu.kernels import (
    attention,
    batch_matmul,
    conv2d,
    conv2d_transpose,
    conv_chain,
    depthwise,
    fallback_loops,
    image_conv2d,
    matmul,
    planar_window,
    recurrent,
    rolling_window,
    stitch_stages,
)
from backends.cpu.kernels.template import Marks, Template

TEMPLATES: tuple[Template[Any, Any], ...] = (
    rolling_window.TEMPLATE,  # before those of its parts: a pool is no anchor, and its convolution looks alone
    conv_chain.TEMPLATE,
    depthwise.TEMPLATE,
    planar_window.TEMPLATE,
    image_conv2d.TEMPLATE,  # before conv2d, which lowers images of few channels too
    conv2d.TEMPLATE,
    conv2d_transpose.TEMPLATE,
    matmul.TEMPLATE,  # before batch_matmul, which lowers constant matrices too
    batch_matmul.TEMPLATE,
    attention.TEMPLATE,  # of what has several anchors, all that no other claims
    recurrent.TEMPLATE,
    stitch_stages.TEMPLATE,
    fallback_loops.TEMPLATE,
)


def takers(marks: Marks) -> Iterator[Template[Any, Any]]:
    """Yield the template that claims a kernel with `marks`, if one does, and those that take any kernel, in order."""
    yield from [template for template in TEMPLATES if template.claims and template.claims(marks)][:1]
    yield from (template for template in TEMPLATES if template.claims is None)


def recognise(func: tirx.PrimFunc) -> tuple[Template[Any, Any], Any]:
    """Return the template that is the first to take `func`, and what it reads of it.

    Raises:
        Declined: It cannot read `func`, which is then left to those behind.
    """
    template = next(takers(Marks.of(func)))
    return template, template.read(func)
