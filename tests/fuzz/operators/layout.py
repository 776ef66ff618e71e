"""Operators that move elements: reshapes, transposes, slices, joins, and those that fill tensors."""

from __future__ import annotations

import itertools
from math import prod

import numpy as np
from onnx import helper, numpy_helper

from tests.fuzz.draw import Draw, Operand, Shape, np_dtype
from tests.fuzz.operators.rows import row


@row("Reshape")
def _reshape(d: Draw) -> None:
    shape = d.main()
    d.set("shape", _other_shape(d, shape), always=True)
    d.set("allowzero", 0)


def _other_shape(d: Draw, shape: Shape) -> list[int]:
    """Return extents with as many elements, some of them 0 (the same as before) or -1 (what is left)."""
    made = [extent for extent in shape if extent != 1]
    if len(made) > 1 and d.chance(0.6):
        at = d.number(0, len(made) - 2)
        made[at : at + 2] = [made[at] * made[at + 1]]
    for _ in range(d.number(0, 2)):
        made.insert(d.number(0, len(made)), 1)
    if d.chance(0.3):
        made = list(shape)
        return [0 if d.chance(0.5) else extent for extent in made]
    if made and prod(shape) and d.chance(0.4):
        made[d.number(0, len(made) - 1)] = -1
    return made


@row("Flatten")
def _flatten(d: Draw) -> None:
    rank = len(d.main(1, 5))
    d.set("axis", d.number(0 if d.schema.since_version < 11 else -rank, rank))


@row("Transpose")
def _transpose(d: Draw) -> None:
    rank = len(d.main(0, 6))
    d.set("perm", [int(axis) for axis in d.rng.permutation(rank)])


@row("Squeeze")
def _squeeze(d: Draw) -> None:
    shape = d.main()
    ones = [axis for axis, extent in enumerate(shape) if extent == 1]
    chosen = [axis for axis in ones if d.chance(0.6)]
    if d.schema.since_version >= 11:
        chosen = [axis - (len(shape) if d.chance(0.3) else 0) for axis in chosen]
    d.set("axes", chosen, always=bool(chosen))


@row("Unsqueeze")
def _unsqueeze(d: Draw) -> None:
    shape = d.main(0, 4)
    count = d.number(1, 3)
    rank = len(shape) + count
    axes = [int(axis) for axis in d.rng.permutation(rank)[:count]]
    d.set(
        "axes", [axis - (rank if d.schema.since_version >= 11 and d.chance(0.3) else 0) for axis in axes], always=True
    )


@row("Expand")
def _expand(d: Draw) -> None:
    shape = d.shape(0, 4)
    d.input(0, d.broadcast(shape))
    d.given(1, np.array(d.broadcast(shape) if d.chance(0.2) else shape, np.int64))


@row("Tile")
def _tile(d: Draw) -> None:
    shape = d.main(0, 4)
    if d.schema.since_version < 6:
        d.given(1, d.number(1, 3))
        d.given(2, d.number(0, max(len(shape) - 1, 0)))
        return
    d.given(1, np.array([d.pick((0, 1, 1, 2, 3)) if d.odd else d.number(1, 3) for _ in shape], np.int64))


@row("Concat")
def _concat(d: Draw) -> None:
    shape = d.main(1, 4)
    axis = d.axis(len(shape)) if d.schema.since_version >= 11 else d.number(0, len(shape) - 1)
    for position in range(1, d.pick((1, 2, 3, 4))):
        part = list(shape)
        part[axis] = d.pick((0, 1, 2, 5, part[axis]))
        d.input(position, tuple(part))
    d.set("axis", axis, always=True)


@row("Split")
def _split(d: Draw) -> None:
    shape = d.main(1, 4)
    axis = d.axis(len(shape)) if d.schema.since_version >= 11 else d.number(0, len(shape) - 1)
    d.set("axis", axis, always=True)
    parts = d.number(1, 4)
    if d.chance(0.6):
        cuts = sorted(d.number(0, shape[axis]) for _ in range(parts - 1))
        ends = [0, *cuts, shape[axis]]
        d.set("split", [b - a for a, b in itertools.pairwise(ends)], always=True)
    elif "num_outputs" in d.schema.attributes:
        d.set("num_outputs", parts, always=True)
    else:
        parts = d.pick([n for n in range(1, 5) if shape[axis] % n == 0])
    d.outputs = parts


@row("Slice")
def _slice(d: Draw) -> None:
    shape = d.main(1, 4)
    axes = d.axes(len(shape)) or [0]
    begins, ends, steps = [], [], []
    for axis in axes:
        extent = shape[axis]
        begins.append(d.number(-extent - 2, extent + 2))
        ends.append(d.pick((d.number(-extent - 2, extent + 2), extent, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))))
        steps.append(d.pick((1, 1, 1, 2, 3, -1, -2, 2**62)))
    d.set("starts", begins, always=True)
    d.set("ends", [_clip_to(end, d) for end in ends], always=True)
    if axes != list(range(len(axes))) or d.chance(0.7):
        d.set("axes", axes if d.schema.since_version >= 10 else [axis % len(shape) for axis in axes], always=True)
    d.set("steps", [_clip_to(step, d) for step in steps])


def _clip_to(number: int, d: Draw) -> int:
    narrow = d.schema.since_version >= 10 and np_dtype(d.dtype(1)).itemsize == 4
    return max(-(2**31), min(number, 2**31 - 1)) if narrow else number


@row("Pad")
def _pad(d: Draw) -> None:
    shape = d.main(1, 4)
    mode = d.pick(
        ("constant", "constant", "edge", "reflect", "wrap")
        if d.schema.since_version >= 19
        else ("constant", "edge", "reflect")
    )
    most = {"reflect": min(shape, default=1) - 1, "wrap": min(shape, default=1)}.get(mode, 3)
    pads = [d.number(0, max(min(3, most), 0)) if d.chance(0.6) else 0 for _ in range(2 * len(shape))]
    if mode == "constant" and d.chance(0.2) and min(shape) > 2:
        pads[d.number(0, len(pads) - 1)] = -1
    d.set("mode", mode, always=True)
    d.set("paddings" if d.has("paddings") else "pads", pads, always=True)
    if "value" in d.schema.attributes:
        d.set_floats("value")
    else:
        d.optional(2, ())


@row("CenterCropPad")
def _center_crop(d: Draw) -> None:
    shape = d.main(1, 4)
    axes = d.axes(len(shape)) if d.chance(0.5) else None
    if axes:
        d.set("axes", axes, always=True)
    d.given(1, np.array([d.size() for _ in (axes or shape)], np.int64))


@row("DepthToSpace", "SpaceToDepth")
def _blocks(d: Draw) -> None:
    block = d.number(1, 3)
    batch, channels, height, width = d.number(1, 2), d.number(1, 3), d.size(1, 5), d.size(1, 5)
    deep = d.schema.name == "DepthToSpace"
    d.input(
        0,
        (batch, channels * block * block, height, width) if deep else (batch, channels, height * block, width * block),
    )
    d.set("blocksize", block, always=True)
    d.set("mode", d.pick(("DCR", "CRD")))


@row("Trilu")
def _trilu(d: Draw) -> None:
    shape = d.main(2, 4)
    if d.chance(0.7):
        d.given(1, np.array(d.pick((0, 1, -1, shape[-1], -shape[-2], 2**40, -(2**40)))))
    d.set("upper", d.number(0, 1))


@row("EyeLike")
def _eye(d: Draw) -> None:
    d.main(2, 2)
    d.set("k", d.number(-3, 3))
    d.set("dtype", d.pick((1, 7, 11)))


_CONSTANTS = (
    ("value_float", 0.5), ("value_int", -3), ("value_floats", [1.0, 2.0]), ("value_ints", [1, 2, 3]),
    ("value_string", "word"), ("value_strings", ["a", "b"]),
)  # fmt: skip


@row("Constant")
def _constant(d: Draw) -> None:
    array = d.array(str(d.pick(("float32", "int64", "float16", "bool", "uint8", "float64"))), d.shape(0, 4))
    if d.schema.since_version >= 12 and d.chance(0.5):
        name, value = d.pick(_CONSTANTS)
        d.attributes[name] = value
        return
    d.attributes["value"] = numpy_helper.from_array(array)


@row("ConstantOfShape")
def _constant_of_shape(d: Draw) -> None:
    d.given(0, np.array(d.shape(0, 4), np.int64))
    dtype = str(d.pick(("float32", "int64", "int32", "bool", "uint8", "float16", "float64")))
    d.set("value", numpy_helper.from_array(d.array(dtype, (1,))))


@row("Range")
def _range(d: Draw) -> None:
    dtype = np_dtype(d.dtype())
    start, step = d.number(-5, 5), d.pick((1, 2, 3, -1, -2))
    values = (start, start + step * d.number(-1, 20), step)
    if dtype.kind not in "iu" and d.chance(0.5):
        values = (start + 0.25, values[1] + 0.1, step * 0.5)
    for position, value in enumerate(values):
        d.given(position, np.array(value, dtype))


@row("Upsample")
def _upsample(d: Draw) -> None:
    shape = d.main(4, 4, 1)
    scales = [1.0, 1.0, d.pick((1.0, 2.0, 1.5)), d.pick((1.0, 2.0, 3.0))]
    if "scales" in d.schema.attributes:
        d.set("scales", scales, always=True)
    elif "height_scale" in d.schema.attributes:
        d.set("height_scale", scales[2], always=True)
        d.set("width_scale", scales[3], always=True)
    else:
        d.inputs[1] = Operand(np.array(scales[: len(shape)], np.float32))
    d.set("mode", d.pick(("nearest", "linear" if d.schema.since_version > 1 else "bilinear")))


@row("BlackmanWindow", "HammingWindow", "HannWindow")
def _window(d: Draw) -> None:
    d.given(0, np.array(d.size()))
    d.set("periodic", d.number(0, 1))
    d.set("output_datatype", d.pick((1, 11, 10)))


@row("Optional", "OptionalGetElement", "OptionalHasElement")
def _optional(d: Draw) -> None:
    array = d.array("float32", d.shape(0, 3))
    if d.schema.name == "Optional":
        d.inputs[0] = Operand(array)
    else:
        d.inputs[0] = Operand(array, kind="optional" if d.schema.since_version < 18 or d.chance(0.5) else "tensor")


@row("If")
def _if(d: Draw) -> None:
    d.given(0, np.array(d.chance(0.5)))
    values = [d.array("float32", d.shape(0, 3)) for _ in range(2)]
    for name, value in zip(("then_branch", "else_branch"), values, strict=True):
        node = helper.make_node("Constant", [], [f"{name}_out"], value=numpy_helper.from_array(value))
        result = helper.make_tensor_value_info(f"{name}_out", 1, None)
        d.attributes[name] = helper.make_graph([node], name, [], [result])
