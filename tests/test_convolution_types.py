"""Types of convolutions are those that TVM tells, and what TVM refuses is refused."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location

import pytest
import tvm
from hypothesis import given
from hypothesis import strategies as st
from tvm import relax

import fusion.frontends  # noqa: F401  # which installs it
from fusion import convolution_types


@st.composite
def convolutions(draw: st.DrawFn) -> relax.Call:
    """Return a conv2d, of operands that may not fit each other."""
    data, kernel = draw(st.sampled_from(["NCHW", "NHWC"])), draw(st.sampled_from(["OIHW", "HWIO", "OHWI"]))
    groups, dtype = draw(st.sampled_from([1, 1, 2, 3])), draw(st.sampled_from(["float32", "float16"]))
    dtypes = dtype, draw(st.sampled_from([dtype, dtype, "float32", "int8"]))
    x = {axis: draw(st.integers(0, 9)) for axis in "NHW"} | {"C": draw(st.sampled_from([4, 6]))}
    w = {axis: draw(st.integers(1, 4)) for axis in "HW"} | {
        "O": draw(st.sampled_from([4, 6])),
        "I": draw(st.sampled_from([x["C"] // groups] * 3 + [2])),
    }
    pairs = st.lists(st.integers(1, 3), min_size=2, max_size=2)
    operands = [
        relax.Var(name, relax.TensorType([sizes[axis] for axis in layout], dtype))
        for name, sizes, layout, dtype in (("x", x, data, dtypes[0]), ("w", w, kernel, dtypes[1]))
    ]
    return relax.op.nn.conv2d(
        *operands,
        strides=draw(pairs),
        padding=draw(st.lists(st.integers(0, 3), min_size=4, max_size=4)),
        dilation=draw(pairs),
        groups=groups,
        data_layout=data,
        kernel_layout=kernel,
        out_layout=draw(st.sampled_from([None, "NCHW", "NHWC"])),
        out_dtype=draw(st.sampled_from([None, "float32"])),
    )


@given(convolutions())
def test_types_of_convolutions_are_those_of_tvm(call: relax.Call) -> None:
    builder = relax.BlockBuilder()
    try:
        wanted = convolution_types._infer(call, builder)
    except Exception as error:
        with pytest.raises(type(error)):
            convolution_types.infer_convolution(call, builder)
        return
    tvm.ir.assert_structural_equal(convolution_types.infer_convolution(call, builder), wanted)


def test_a_batch_that_only_the_run_knows_is_told_by_tvm() -> None:
    batch = tvm.tirx.Var("batch", "int64")
    found = relax.BlockBuilder().normalize(_convolution(batch)).ty
    assert found.shape.values[0].same_as(batch)
    assert list(map(int, found.shape.values[1:])) == [4, 6, 6]


def test_builders_do_not_ask_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> relax.Type:
        raise AssertionError("TVM takes a millisecond")

    monkeypatch.setattr(convolution_types, "_infer", refuse)
    assert list(map(int, relax.BlockBuilder().normalize(_convolution(2)).ty.shape)) == [2, 4, 6, 6]


def test_a_second_copy_of_the_module_changes_nothing() -> None:
    spec = spec_from_file_location("a_second_copy", convolution_types.__file__)
    assert spec is not None
    assert spec.loader is not None
    copy = module_from_spec(spec)
    spec.loader.exec_module(copy)
    copy.install()
    assert list(map(int, relax.BlockBuilder().normalize(_convolution(2)).ty.shape)) == [2, 4, 6, 6]


def _convolution(batch: int | tvm.tirx.Var) -> relax.Call:
    x = relax.Var("x", relax.TensorType((batch, 3, 8, 8), "float32"))
    return relax.op.nn.conv2d(x, relax.Var("w", relax.TensorType((4, 3, 3, 3), "float32")))
