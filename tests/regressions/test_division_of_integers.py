"""Integers divided by zero, and the lowest one by -1, ended the process; quotients of constants were rounded down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import pytest
import tvm
from onnx import helper, numpy_helper
from tvm import relax

import fusion
from fusion.errors import ExecutionError

_OPERATORS = {"div": ("Div", {}), "mod": ("Mod", {}), "fmod": ("Mod", {"fmod": 1})}
_NUMPY = {"div": lambda a, b: (a - np.fmod(a, b)) // b, "mod": np.mod, "fmod": np.fmod}
_DTYPES = ("int8", "uint8", "int16", "int32", "uint32", "int64", "uint64")
_SHAPES = ((4, 9), (9,), (4, 1), ())


def _model(
    dtype: str, shapes: Sequence[Sequence[int]], held: Mapping[str, np.ndarray] | None = None
) -> onnx.ModelProto:
    """Return a model of all three operators on `a` and a divisor of each of `shapes`, some of them constants."""
    kind, held = helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), held or {}
    infos = [helper.make_tensor_value_info("a", kind, (4, 9))]
    infos += [helper.make_tensor_value_info(f"b{index}", kind, shape) for index, shape in enumerate(shapes)]
    nodes = [
        helper.make_node(op, ["a", f"b{index}"], [f"{name}{index}"], f"the_{name}{index}", **attributes)
        for index in range(len(shapes))
        for name, (op, attributes) in _OPERATORS.items()
    ]
    graph = helper.make_graph(
        nodes, "g", [info for info in infos if info.name not in held],
        [helper.make_tensor_value_info(node.output[0], kind, (4, 9)) for node in nodes],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def _wanted(a: np.ndarray, divisors: Sequence[np.ndarray]) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        return [function(a, b) for b in divisors for function in _NUMPY.values()]


def _dividends(dtype: str) -> np.ndarray:
    values = np.random.default_rng(0).integers(0 if dtype[0] == "u" else -100, 100, (4, 9)).astype(dtype)
    values[0, 0] = np.iinfo(dtype).min
    return values


@pytest.mark.parametrize("dtype", _DTYPES)
def test_divisors_of_the_run(dtype: str) -> None:
    """Every divisor but 0 has a result, -1 too; 0 is an error that names the node."""
    a, rng = _dividends(dtype), np.random.default_rng(1)
    compiled = fusion.compile(_model(dtype, _SHAPES), threads=1)
    small = [np.asarray(rng.integers(1, 7, shape), dtype) for shape in _SHAPES]
    negative = [np.asarray(np.full(shape, 1 if dtype[0] == "u" else -1), dtype) for shape in _SHAPES]
    for divisors in (small, negative):
        for made, right in zip(compiled(a, *divisors), _wanted(a, divisors), strict=True):
            np.testing.assert_array_equal(made, right)
    for index in range(len(_SHAPES)):
        divisors = [divisor.copy() for divisor in small]
        divisors[index].reshape(-1)[-1:] = 0
        with pytest.raises(ExecutionError, match="an integer is divided by zero") as caught:
            compiled(a, *divisors)
        assert f"the_div{index}" in caught.value.where


@pytest.mark.parametrize("dtype", ["int32", "uint8"])
def test_constants(dtype: str) -> None:
    """Folded or not, the numbers are those of the run, and a divisor of 0 is an error of the run."""
    a, b = _dividends(dtype), np.arange(1, 10).astype(dtype)
    if dtype == "int32":
        b[0] = -1
    wanted = _wanted(a, [b])
    for held in ({"b0": b}, {"a": a, "b0": b}):
        arrays = [] if "a" in held else [a]
        for made, right in zip(fusion.compile(_model(dtype, [(9,)], held))(*arrays), wanted, strict=True):
            np.testing.assert_array_equal(made, right)
        zero = {**held, "b0": np.where(np.arange(9) == 3, 0, b).astype(dtype)}
        with pytest.raises(ExecutionError, match="an integer is divided by zero"):
            fusion.compile(_model(dtype, [(9,)], zero))(*arrays)


def test_constants_of_relax_are_rounded_towards_zero() -> None:
    """`FoldConstants` rounded down: -7 / 2 was -4."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "int32"))
    a, b = (relax.const(np.array(values, "int32")) for values in ([-7, 7, -8], [2, -2, 2]))
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.add(x, relax.op.divide(a, b)))
        builder.emit_func_output(result)
    (made,) = fusion.compile(builder.get())(np.zeros(3, "int32"))
    np.testing.assert_array_equal(made, [-3, -3, -4])


def _fused() -> tvm.IRModule:
    """Return (a + b) / (b * 2) * a, whose divisor another operator makes."""
    builder = relax.BlockBuilder()
    a, b = (relax.Var(name, relax.TensorType((5, 16), "int32")) for name in "ab")
    with builder.function("main", [a, b]):
        with builder.dataflow():
            quotient = relax.op.divide(relax.op.add(a, b), relax.op.multiply(b, relax.const(2, "int32")))
            result = builder.emit_output(relax.op.multiply(quotient, a))
        builder.emit_func_output(result)
    return builder.get()


def test_a_divisor_that_is_computed() -> None:
    compiled = fusion.compile(_fused(), threads=1)
    rng = np.random.default_rng(2)
    a, b = rng.integers(-99, 99, (5, 16)).astype("int32"), rng.integers(1, 9, (5, 16)).astype("int32")
    np.testing.assert_array_equal(compiled(a, b)[0], np.trunc((a + b) / (b * 2)).astype("int32") * a)
    b[4, 15] = 0
    with pytest.raises(ExecutionError, match="an integer is divided by zero"):
        compiled(a, b)


_OF_RELAY = ("divide", "floor_divide", "mod", "floor_mod", "trunc_divide", "trunc_mod")


def test_operators_of_relay() -> None:
    """The error names the operator and where it stands in the text."""
    kind = "Tensor[(4), int32]"
    lines = [f"  %{index} = {operator}(%a, %b{index});" for index, operator in enumerate(_OF_RELAY)]
    places = range(len(_OF_RELAY))
    parameters = ", ".join([f"%a: {kind}", *(f"%b{index}: {kind}" for index in places)])
    result = f"({', '.join(f'%{index}' for index in places)})"
    text = "\n".join(['#[version = "0.0.5"]', f"def @main({parameters}) {{", *lines, f"  {result}", "}", ""])
    compiled = fusion.compile(text, threads=1)
    lowest, good = np.full(4, np.iinfo("int32").min, "int32"), np.full(4, -1, "int32")
    compiled(lowest, *[good] * len(_OF_RELAY))
    for index, operator in enumerate(_OF_RELAY):
        divisors = [good if at != index else np.array([1, 2, 0, 4], "int32") for at in places]
        with pytest.raises(ExecutionError, match="an integer is divided by zero") as caught:
            compiled(lowest, *divisors)
        assert caught.value.where.startswith(f"{operator}, ")
