"""Kernels of which a call may say that all results have no elements: they do nothing then.

    if results have elements: loops

Loops of no iterations would do as little, but what comes before them divides by extents, and reads first elements.

The result of a kernel that writes a slice of a joined tensor is the whole of that: where it has elements but the slice
has none, the loops run, and have to be right for no iterations. Kernels that no template takes do not come here.
"""

from __future__ import annotations

from functools import reduce
from math import prod

from tvm import tirx

from backends.tensorir.emit import Nest
from backends.tensorir.stages import dims_of
from fusion.structural import find


def skip_nothing(made: tirx.PrimFunc, source: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `made`, the loops of `source`, under the condition that a result has elements."""
    stored = {store.buffer for store in find(source.body, tirx.BufferStore)}
    results = [own for own, param in zip(made.params, source.params, strict=True) if param in stored]
    open_dims = [[dim for dim in dims_of(result) if not isinstance(dim, int)] for result in results]
    if not all(open_dims):
        return made
    nest = Nest()
    with nest.when(reduce(tirx.any, [prod(dims) > 0 for dims in open_dims])):
        nest.add(made.body)
    return made.with_body(nest.finish())
