"""A table of oneDNN's primitives: what describes each to the library."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backends.onednn.api import ANY_FORMAT, F32, FORWARD_INFERENCE, Handle, OneDnn, OneDnnError, dims
from backends.onednn.operation import (
    BIAS,
    DST,
    FREE,
    GIVEN,
    SCALE,
    SHIFT,
    SRC,
    SRC_1,
    WEIGHTS,
    Operation,
    PrimitiveOperand,
)

ALGORITHMS = {
    "convolution_direct": 0x1,
    "eltwise_relu": 0x20,
    "eltwise_tanh": 0x21,
    "eltwise_abs": 0x24,
    "eltwise_sqrt": 0x25,
    "eltwise_logistic": 0x29,
    "eltwise_gelu_tanh": 0x2B,
    "eltwise_swish": 0x2C,
    "eltwise_gelu_erf": 0x31,
    "pooling_avg_include_padding": 0x2FF,
    "pooling_avg_exclude_padding": 0x3FF,
    "softmax_accurate": 0x30000,
    "binary_add": 0x1FFF0,
    "binary_mul": 0x1FFF1,
    "binary_max": 0x1FFF2,
    "binary_min": 0x1FFF3,
    "binary_div": 0x1FFF4,
    "binary_sub": 0x1FFF5,
}
"""`dnnl_alg_kind_t`, without its prefix."""
_ANY_CASE = "ref"
"""What the names of implementations begin with that take any case."""
_STRICT = 0
_USER_SCRATCHPAD = 1
_SCALE_AND_SHIFT = 0x2 | 0x4


@dataclass(frozen=True, eq=False)
class Site:
    """What a row of the table describes a primitive with.

    Attributes:
        api: The library.
        operation: What is to be computed.
        kinds: Memory descriptors, by the argument that each is.
        attributes: What follows, where scratch memory is from, and the precision.
    """

    api: OneDnn
    operation: Operation
    kinds: Mapping[int, Any]
    attributes: Handle

    def sizes(self, name: str) -> Any:
        """Return one of the lists of numbers."""
        return dims(self.operation.sizes[name])

    @property
    def algorithm(self) -> int:
        """The algorithm."""
        return ALGORITHMS[self.operation.algorithm]

    def describe(self, name: str, *arguments: Any) -> Handle:
        """Return the description of the primitive `name`, an integer, a list of sizes or an argument at a time."""
        return self.api.make_description(name, self.api.engine, *arguments, self.attributes)


def _matmul(site: Site) -> Handle:
    kinds = site.kinds
    return site.describe("matmul", kinds[SRC], kinds[WEIGHTS], kinds.get(BIAS), kinds[DST])


def _convolution(site: Site) -> Handle:
    kinds = site.kinds
    tensors = kinds[SRC], kinds[WEIGHTS], kinds.get(BIAS), kinds[DST]
    window = (site.sizes(name) for name in ("strides", "dilation", "begin", "end"))
    return site.describe("convolution_forward", FORWARD_INFERENCE, site.algorithm, *tensors, *window)


def _pooling(site: Site) -> Handle:
    window = (site.sizes(name) for name in ("strides", "kernel", "dilation", "begin", "end"))
    return site.describe(
        "pooling_forward", FORWARD_INFERENCE, site.algorithm, site.kinds[SRC], site.kinds[DST], *window
    )


def _softmax(site: Site) -> Handle:
    axis = int(site.operation.numbers["axis"])
    return site.describe("softmax_forward", FORWARD_INFERENCE, site.algorithm, site.kinds[SRC], site.kinds[DST], axis)


def _layer_normalization(site: Site) -> Handle:
    flags = _SCALE_AND_SHIFT if SCALE in site.kinds and SHIFT in site.kinds else 0
    numbers = site.operation.numbers["epsilon"], flags
    return site.describe(
        "layer_normalization_forward", FORWARD_INFERENCE, site.kinds[SRC], site.kinds[DST], None, *numbers
    )


def _eltwise(site: Site) -> Handle:
    numbers = site.operation.numbers["alpha"], site.operation.numbers["beta"]
    return site.describe(
        "eltwise_forward", FORWARD_INFERENCE, site.algorithm, site.kinds[SRC], site.kinds[DST], *numbers
    )


def _binary(site: Site) -> Handle:
    kinds = site.kinds
    return site.describe("binary", site.algorithm, kinds[SRC], kinds[SRC_1], kinds[DST])


PRIMITIVES: Mapping[str, Callable[[Site], Handle]] = {
    "matmul": _matmul,
    "convolution": _convolution,
    "pooling": _pooling,
    "softmax": _softmax,
    "layer_normalization": _layer_normalization,
    "eltwise": _eltwise,
    "binary": _binary,
}
IN_PLACE = frozenset({"eltwise", "binary"})
"""Those whose result may take the place of `SRC`."""


def describe(api: OneDnn, operation: Operation, given: Any = None) -> Handle:
    """Return the description of the primitive that computes `operation`.

    Args:
        api: The library.
        operation: It.
        given: The memory descriptor of what `SRC` is made as, where that has the shape of the operand; None for one in
            the order of its axes.

    Raises:
        OneDnnError: oneDNN has none, or but a loop for any case, which takes a hundred times as long.
    """
    operands = operation.all_operands()
    kinds = {argument: _kind(api, operand, operands[SRC], given) for argument, operand in operands.items()}
    kinds[DST] = (free_kind if operation.order == FREE else plain_kind)(api, operation.shape)
    made = PRIMITIVES[operation.primitive](Site(api, operation, kinds, _attributes(api, operation, kinds)))
    if api.implementation(made).startswith(_ANY_CASE):
        raise OneDnnError(f"{operation.primitive}: no kernel, but a loop for any case")
    return made


def _kind(api: OneDnn, operand: PrimitiveOperand, src: PrimitiveOperand, given: Any) -> Any:
    if operand.order == GIVEN and given is not None and operand.shape == src.shape:
        return given
    return (free_kind if operand.order == FREE else plain_kind)(api, operand.shape)


def plain_kind(api: OneDnn, shape: Sequence[int]) -> Handle:
    """Return the descriptor of a float32 tensor in the order of its axes."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return api.make("dnnl_memory_desc", "create_with_strides", len(shape), dims(shape), F32, dims(strides))


def free_kind(api: OneDnn, shape: Sequence[int]) -> Handle:
    """Return the descriptor of a float32 tensor whose order in memory a primitive chooses."""
    return api.make("dnnl_memory_desc", "create_with_tag", len(shape), dims(shape), F32, ANY_FORMAT)


def plain_attributes(api: OneDnn) -> Handle:
    """Return the attributes of a primitive with nothing behind it: all in float32, scratch memory from the caller."""
    made = api.make("dnnl_primitive_attr", "create")
    api.call("dnnl_primitive_attr_set_fpmath_mode", made, _STRICT)
    api.call("dnnl_primitive_attr_set_scratchpad_mode", made, _USER_SCRATCHPAD)
    return made


def _attributes(api: OneDnn, operation: Operation, kinds: Mapping[int, Any]) -> Handle:
    made = plain_attributes(api)
    behind = api.make("dnnl_post_ops", "create")
    for each in operation.post_ops:
        algorithm = ALGORITHMS[each.algorithm]
        if each.operand is None:
            api.call("dnnl_post_ops_append_eltwise", behind, algorithm, each.alpha, each.beta)
        else:
            api.call("dnnl_post_ops_append_binary", behind, algorithm, kinds[each.operand.argument])
    api.call("dnnl_primitive_attr_set_post_ops", made, behind)
    return made
