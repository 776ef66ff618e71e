"""The kernel families in order of priority, in which scheduling, lowering and profitability ask them."""

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
    matmul_nbits,
    planar_window,
    recurrent,
    rolling_window,
    stitch_stages,
)
from backends.cpu.kernels.template import Marks, Template
from fusion.declined import Declined

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
    matmul_nbits.TEMPLATE,
    attention.TEMPLATE,  # of what has several anchors, all that no other claims
    recurrent.TEMPLATE,
    stitch_stages.TEMPLATE,
    fallback_loops.TEMPLATE,
)


def takers(func: tirx.PrimFunc, marks: Marks) -> Iterator[Template[Any, Any]]:
    """Yield the template that claims a kernel with `marks`, if one does, and then those that claim none but whose form
    the kernel has, in order."""
    yield from [template for template in TEMPLATES if template.claims and template.claims(marks)][:1]
    yield from (template for template in TEMPLATES if template.claims is None and _has_form(template, func))


def recognise(func: tirx.PrimFunc) -> tuple[Template[Any, Any], Any]:
    """Return the first template that can read `func`, except plain loops, with what it reads.

    Raises:
        Declined: The template that claims `func` cannot read it, or no other can; the reason has all of theirs.
    """
    reasons: list[str] = []
    for template in takers(func, Marks.of(func)):
        if template.name == fallback_loops.TEMPLATE.name:
            continue
        try:
            return template, template.read(func)
        except Declined as reason:
            if template.claims:
                raise  # later templates would compute its anchors like any other stage, which is no kernel to aim for
            reasons.append(str(reason))
    raise Declined("; ".join(dict.fromkeys(reasons)) or "it has the form of no family")


def is_last_resort(name: str, marks: Marks) -> bool:
    """Return whether the template of this name is the plain loops, or one that computes anchors like any other
    stage."""
    unclaimed = {template.name for template in TEMPLATES if template.claims is None}
    return name == fallback_loops.TEMPLATE.name or (bool(marks.anchors) and name in unclaimed)


def _has_form(template: Template[Any, Any], func: tirx.PrimFunc) -> bool:
    try:
        return template.concerns(func)
    except Declined:
        return False
    except Exception:  # TVM raises many types; `read` raises it again, where it is noted
        return True
