"""Sums of products: matmuls and convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from backends.to_onnx.call import Convert, ExportedCall, dtype_of, node
from backends.to_onnx.graph import EIGHT_BITS
from fusion.declined import Declined

_SPATIAL = "DHW"


def _operands(site: ExportedCall) -> list[str]:
    """Return the operands in the dtype of the result, in which ONNX sums: float32 of float16, int32 of int8."""
    dtype = dtype_of(site.result)
    return [
        x if site.dtype(at) == dtype else site.cast(x, dtype) for at, x in enumerate(site.inputs)
    ]  # fmt: skip


def _matmul(site: ExportedCall) -> str:
    return site.emit("MatMul", *_operands(site))


def _outer(site: ExportedCall) -> str:
    column = site.emit("Unsqueeze", site.inputs[0], site.ints([1]))
    return site.emit("Mul", column, site.inputs[1])


def _convolution(operator: str, weights: str) -> Convert:
    """Return what writes a convolution over one to three axes. ONNX stores channels first, and of weights the axes
    `weights` first: others are transposed."""

    def convert(site: ExportedCall) -> str:
        has_integers = operator == "Conv" and dtype_of(site.result) == "int32"
        (data, kernel), zeros = _narrow(site) if has_integers else (_operands(site), ())
        spatial = _SPATIAL[-len(site.attr("strides")) :]
        data = stored_as(site, data, site.attr("data_layout"), f"NC{spatial}")
        kernel = stored_as(site, kernel, site.attr("kernel_layout"), f"{weights}{spatial}")
        padding = site.attr("output_padding") if operator == "ConvTranspose" else ()
        result = site.emit(
            "ConvInteger" if has_integers else operator, data, kernel, *zeros,
            strides=site.attr("strides"), pads=site.attr("padding"), dilations=site.attr("dilation"),
            group=site.attr("groups"), output_padding=padding if any(padding) else None,
        )  # fmt: skip
        return stored_as(site, result, f"NC{spatial}", site.attr("out_layout") or site.attr("data_layout"))

    return convert


def _narrow(site: ExportedCall) -> tuple[list[str], list[str]]:
    """Return the operands of a convolution of integers as 8 bits, and what is taken off each; "" where nothing is.

    Raises:
        Declined: One has more than 8 bits.
    """
    found = [
        (value, "") if site.dtype(at) in EIGHT_BITS else _centred(site, value) for at, value in enumerate(site.inputs)
    ]
    values, zeros = zip(*found, strict=True)
    return [*values], [*zeros]


def _centred(site: ExportedCall, value: str) -> tuple[str, str]:
    """`int32(x)` or `int32(x) - int32(zero)` as x and the zero point."""
    known, node = site.graph.widened, site.graph.made_by(value)
    if value in known:
        return known[value].source, ""
    if node is not None and node.op_type == "Sub" and all(given in known for given in node.input):
        x, zero = (known[given] for given in node.input)
        if zero.is_single and zero.dtype == x.dtype:
            return x.source, site.reshape(zero.source, [])
    raise Declined("ONNX convolves integers of 8 bits only, less one zero point")


def stored_as(site: ExportedCall, value: str, layout: str, wanted: str) -> str:
    """Return `value`, whose axes are `layout`, with those in the order of `wanted`.

    Raises:
        Declined: It is stored in blocks.
    """
    if sorted(layout) != sorted(wanted):
        raise Declined(f"ONNX has no layout {layout}")
    return site.transpose(value, [layout.index(axis) for axis in wanted])


PRODUCTS: Mapping[str, Convert] = {
    "einsum": node("Einsum", {"equation": "subscripts"}),
    "matmul": _matmul,
    **{f"nn.conv{rank}d": _convolution("Conv", "OI") for rank in (1, 2, 3)},
    **{f"nn.conv{rank}d_transpose": _convolution("ConvTranspose", "IO") for rank in (1, 2, 3)},
    "outer": _outer,
}
