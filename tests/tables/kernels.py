"""One kernel of each family, before it has loops."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from backends.cpu.kernels import fallback_loops
from backends.cpu.kernels.priority import recognise
from backends.cpu.kernels.template import Template
from fusion.declined import Declined
from tests.backends.cpu.kernels.anchored import always, groups
from tests.backends.cpu.kernels.examples import KernelExample, examples_of
from tests.passes.modules import module
from tests.tables.expressions import expression, shapes


def kernel_of(template: Template[Any, Any]) -> tuple[tirx.PrimFunc, str]:
    """Return a kernel that is of the family, and what it computes."""
    example = examples_of(template)[0]
    if isinstance(example, KernelExample):
        return example.func(), example.text
    data = [example.data()]
    found = [func for func in groups(example.build, data, always) if _family(func) is template]
    assert len(found) == 1, f"{len(found)} kernels of {template.name} in its example"
    mod = module(example.build, data)
    return found[0], f"`{expression(mod)}`, {shapes(mod)}"


def _family(func: tirx.PrimFunc) -> Template[Any, Any]:
    try:
        return recognise(func)[0]
    except Declined:
        return fallback_loops.TEMPLATE
