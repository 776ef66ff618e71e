"""Operators with windows over images, and those that sample them."""

from __future__ import annotations

import numpy as np

from tests.fuzz.draw import LEFT_OUT, Draw, Shape
from tests.fuzz.operators.rows import row


def _image(d: Draw, channels: int, low: int = 1, high: int = 3) -> Shape:
    """Return the shape of a batch of images with one to three axes."""
    axes = d.pick((1, 2, 2, 2, 3)) if (low, high) == (1, 3) else d.number(low, high)
    return (d.number(1, 2), channels, *(d.size(1, 17 if axes < 3 else 5) for _ in range(axes)))


def _window(d: Draw, image: Shape, dilations: bool = True) -> list[int]:
    """Set the attributes of a window that fits into the padded image; return its extents."""
    sizes = image[2:]
    kernel, pads, steps = [], [], []
    for size in sizes:
        pad = [d.number(0, 2), d.number(0, 2)] if d.chance(0.5) else [0, 0]
        kernel.append(d.number(1, max(1, min(5, size + sum(pad)))))
        pads.append([min(p, kernel[-1] - 1) for p in pad])
        steps.append(d.pick((1, 1, 2, 3)))
    spans = [(size + sum(pad) - 1) // max(k - 1, 1) for size, pad, k in zip(sizes, pads, kernel, strict=True)]
    d.set("kernel_shape", kernel, always=d.schema.name not in ("Conv", "ConvInteger"))
    d.set("strides", [d.pick((1, 1, 2, 3)) for _ in sizes])
    if dilations:
        d.set("dilations", [min(step, max(span, 1)) for step, span in zip(steps, spans, strict=True)])
    if d.chance(0.25):
        d.set("auto_pad", d.pick(("SAME_UPPER", "SAME_LOWER", "VALID")), always=True)
        d.attributes.pop("dilations", None)
    else:
        d.set("pads", [pad[0] for pad in pads] + [pad[1] for pad in pads])
    return kernel


def _groups(d: Draw) -> tuple[int, int, int]:
    """Return the number of groups, and the channels of each group of the input and of the output."""
    return d.pick(((1, d.size(1, 17), d.size(1, 17)), (d.number(2, 4), 1, d.number(1, 2)), (2, 3, 5)))


@row("Conv", "ConvInteger", "QLinearConv")
def _conv(d: Draw) -> None:
    group, deep, out = _groups(d)
    image = _image(d, group * deep)
    kernel = _window(d, image)
    d.set("group", group, always=group > 1)
    weight = (group * out, deep, *kernel)
    d.input(0, image)
    if d.schema.name == "Conv":
        d.input(1, weight, fixed=True if d.chance(0.5) else None)
        d.optional(2, (group * out,))
    elif d.schema.name == "ConvInteger":
        d.input(1, weight)
        d.optional(2, (), "unit")
        d.optional(3, (), "unit")
    else:
        per = (group * out,) if d.chance(0.4) else ()
        d.input(3, weight)
        for position, shape in ((1, ()), (4, per), (6, ())):
            d.input(position, shape, "positive")
        for position, shape in ((2, ()), (5, per), (7, ())):
            d.input(position, shape, "unit")
        d.optional(8, (group * out,))


@row("ConvTranspose")
def _deconv(d: Draw) -> None:
    group, deep, out = _groups(d)
    image = _image(d, group * deep)
    sizes = image[2:]
    kernel = [d.number(1, 4) for _ in sizes]
    strides = [d.number(1, 3) for _ in sizes]
    d.input(0, image)
    d.input(1, (group * deep, out, *kernel))
    d.optional(2, (group * out,))
    d.set("kernel_shape", kernel)
    d.set("strides", strides, always=True)
    d.set("group", group, always=group > 1)
    if d.chance(0.2):
        d.set("auto_pad", d.pick(("SAME_UPPER", "SAME_LOWER", "VALID")), always=True)
        return
    d.set("dilations", [d.pick((1, 1, 2)) for _ in sizes])
    d.set("pads", [d.number(0, (k - 1) // 2) for k in kernel] * 2)
    if d.chance(0.3):
        d.set("output_padding", [d.number(0, stride - 1) for stride in strides], always=True)


@row("CausalConvWithState")
def _causal(d: Draw) -> None:
    batch, channels, length, size = d.number(1, 2), d.size(1, 8), d.size(1, 9), d.number(2, 4)
    d.input(0, (batch, channels, length))
    d.input(1, (channels, 1, size))
    d.optional(2, (channels,))
    d.optional(3, (batch, channels, size - 1))
    d.set("activation", d.pick(("none", "silu", "swish")))
    d.outputs = d.number(1, 2)


@row("DeformConv")
def _deform(d: Draw) -> None:
    batch, channels, size, kernel, out = 1, d.number(1, 3), d.number(3, 6), d.number(1, 3), d.number(1, 3)
    result = size - kernel + 1
    d.input(0, (batch, channels, size, size))
    d.input(1, (out, channels, kernel, kernel))
    d.input(2, (batch, 2 * kernel * kernel, result, result), "around")
    d.optional(3, (out,))
    d.optional(4, (batch, kernel * kernel, result, result), "unit")
    d.set("kernel_shape", [kernel, kernel])
    d.set("pads", [0, 0, 0, 0])


@row("AveragePool", "MaxPool", "LpPool")
def _pool(d: Draw) -> None:
    image = d.main(3, 5, 1) if d.chance(0.5) else _image(d, d.size(1, 9))
    if 0 not in d.inputs or d.inputs[0].value.shape != image:
        d.input(0, image)
    if d.schema.name == "LpPool" and d.schema.since_version == 1:
        d.set_floats("p")
    _window(d, image)
    d.set("ceil_mode", d.number(0, 1))
    d.set("count_include_pad", d.number(0, 1))
    d.set("storage_order", d.number(0, 1))
    if d.schema.name == "LpPool" and d.schema.since_version > 1:
        d.set("p", d.number(1, 3))
    d.outputs = d.number(1, 2) if d.schema.name == "MaxPool" and d.schema.max_output > 1 else 1


@row("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def _global(d: Draw) -> None:
    d.main(3, 5, 1)
    if d.schema.since_version > 1:
        d.set("p", d.number(1, 3))


@row("MaxRoiPool")
def _max_roi(d: Draw) -> None:
    batch, size = d.number(1, 2), d.size(3, 9)
    d.input(0, (batch, d.number(1, 3), size, size))
    d.given(1, _boxes(d, batch, size, with_batch=True))
    d.set("pooled_shape", [d.number(1, 3), d.number(1, 3)], always=True)
    d.set("spatial_scale", float(d.pick((1.0, 0.5))))


@row("RoiAlign")
def _roi_align(d: Draw) -> None:
    batch, size = d.number(1, 2), d.size(3, 9)
    d.input(0, (batch, d.number(1, 3), size, size))
    boxes = _boxes(d, batch, size)
    d.given(1, boxes)
    d.given(2, d.rng.integers(0, batch, len(boxes)))
    d.set("mode", d.pick(("avg", "max")))
    d.set("coordinate_transformation_mode", d.pick(("half_pixel", "output_half_pixel")))
    d.set("output_height", d.number(1, 4))
    d.set("output_width", d.number(1, 4))
    d.set("sampling_ratio", d.number(0, 3))
    d.set("spatial_scale", float(d.pick((1.0, 0.5, 2.0))))


def _boxes(d: Draw, batch: int, size: int, with_batch: bool = False) -> np.ndarray:
    count = d.number(1, 5)
    corners = np.sort(d.rng.random((count, 2, 2)) * (size - 1), axis=1).reshape(count, 4)
    return np.concatenate([d.rng.integers(0, batch, (count, 1)), corners], axis=1) if with_batch else corners


@row("Resize")
def _resize(d: Draw) -> None:
    shape = d.main(1, 5, 1) if d.chance(0.3) else d.main(4, 4, 1)
    modes = ("nearest", "linear", "cubic") if d.schema.since_version >= 11 else ("nearest", "linear")
    mode = d.pick(modes)
    d.set("mode", mode, always=True)
    scales = [
        d.pick((1.0, 1.0, 2.0, 0.5, 1.5, 0.7, 3.0)) if axis >= len(shape) - 2 else 1.0 for axis in range(len(shape))
    ]
    if d.schema.since_version < 11:
        d.given(1, np.array(scales, np.float32))
        return
    d.set("coordinate_transformation_mode", d.pick(_coordinates(d)))
    d.set("nearest_mode", d.pick(("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")))
    d.set("antialias", int(mode != "nearest" and d.chance(0.3)))
    d.set("cubic_coeff_a", float(d.pick((-0.75, -0.5))))
    d.set("exclude_outside", int(mode == "cubic" and d.chance(0.3)))
    d.set("extrapolation_value", 0.5)
    by_size = d.chance(0.4)
    required = d.schema.since_version < 13
    roi = [0.0] * len(shape) + [1.0] * len(shape)
    needs_roi = required or d.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    d.given(1, np.array(roi)) if needs_roi else d.inputs.update({1: LEFT_OUT})
    if by_size:
        d.given(2, np.array([], np.float32)) if required else d.inputs.update({2: LEFT_OUT})
        d.given(3, np.array([max(1, int(extent * scale)) for extent, scale in zip(shape, scales, strict=True)]))
    else:
        d.given(2, np.array(scales))


def _coordinates(d: Draw) -> tuple[str, ...]:
    common = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize")
    return (*common, "half_pixel_symmetric") if d.schema.since_version >= 19 else common


@row("GridSample")
def _grid_sample(d: Draw) -> None:
    axes = d.number(2, 3) if d.schema.since_version >= 20 else 2
    batch = d.number(1, 2)
    d.input(0, (batch, d.number(1, 3), *(d.size(1, 7) for _ in range(axes))))
    places = d.array(d.dtype(1), (batch, *(d.size(1, 5) for _ in range(axes)), axes), "around")
    d.given(1, places * np.array(d.pick((1.0, 1.5)), places.dtype))
    modes = ("linear", "nearest", "cubic") if d.schema.since_version >= 20 else ("bilinear", "nearest", "bicubic")
    d.set("mode", d.pick(modes if axes == 2 else modes[:2]))
    d.set("padding_mode", d.pick(("zeros", "border", "reflection")))
    d.set("align_corners", d.number(0, 1))


@row("AffineGrid")
def _affine_grid(d: Draw) -> None:
    axes, batch = d.number(2, 3), d.number(1, 2)
    d.input(0, (batch, axes, axes + 1))
    d.given(1, np.array([batch, 1, *(d.size(1, 5) for _ in range(axes))]))
    d.set("align_corners", d.number(0, 1))


@row("Col2Im")
def _col2im(d: Draw) -> None:
    height, width, down, across = d.size(2, 7), d.size(2, 7), d.number(1, 2), d.number(1, 2)
    places = (height - down + 1) * (width - across + 1)
    d.input(0, (d.number(1, 2), d.number(1, 2) * down * across, places))
    d.given(1, np.array([height, width]))
    d.given(2, np.array([down, across]))
    d.set("strides", [1, 1])
    d.set("dilations", [1, 1])
    d.set("pads", [0, 0, 0, 0])
