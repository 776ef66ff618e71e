"""Sums of products: matmuls and convolutions."""

from __future__ import annotations

from collections.abc import Mapping

from backends.to_onnx.call import Convert, ExportedCall, dtype_of, node
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
        data, kernel = _operands(site)
        spatial = _SPATIAL[-len(site.attr("strides")) :]
        data = stored_as(site, data, site.attr("data_layout"), f"NC{spatial}")
        kernel = stored_as(site, kernel, site.attr("kernel_layout"), f"{weights}{spatial}")
        padding = site.attr("output_padding") if operator == "ConvTranspose" else ()
        result = site.emit(
            operator, data, kernel,
            strides=site.attr("strides"), pads=site.attr("padding"), dilations=site.attr("dilation"),
            group=site.attr("groups"), output_padding=padding if any(padding) else None,
        )  # fmt: skip
        return stored_as(site, result, f"NC{spatial}", site.attr("out_layout") or site.attr("data_layout"))

    return convert


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
