"""Products of quantised tensors become products of bytes, with the same results; others stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from fusion.passes.multiply_bytes import MultiplyBytes
from tests.passes.modules import Build, apply, calls, module, names, normal, unchanged

FOURS, PAIRS = ("uint8", "int8"), ("int16", "int16")
FORMS = {"fours": (FOURS, PAIRS), "pairs": (PAIRS,)}
"""What CPUs with VNNI multiply, and others with AVX2."""

in_both_forms = pytest.mark.parametrize("form", FORMS)


def product_of(form: str) -> str:
    """Return the dtypes of a product of bytes: of both operands, and of the result."""
    return " ".join((*FORMS[form][0], "int32"))


def drawn(dtype: str, *shape: int, seed: int = 0) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng([seed, *shape]).integers(limits.min, limits.max + 1, shape).astype(dtype)


def number(value: float, dtype: str = "float32") -> relax.Constant:
    return relax.const(np.array(value, dtype))


def rows(b: relax.BlockBuilder, x: relax.Expr, zero: int) -> relax.Var:
    return b.emit(op.dequantize(x, number(0.02), number(zero, str(x.ty.dtype.dtype)), -1, "float32"))


def matrix(b: relax.BlockBuilder, shape: tuple[int, int], axis: int, *, scales: int = 1) -> relax.Var:
    """Return weights with so many scales along an axis, and zero points of 3."""
    scale = np.linspace(0.01, 0.03, scales, dtype="float32") if scales > 1 else np.float32(0.01)
    zero = np.full(scales, 3, "int8") if scales > 1 else np.int8(3)
    weights = np.clip(drawn("int8", *shape), -120, 127)
    return b.emit(op.dequantize(relax.const(weights), relax.const(scale), relax.const(zero), axis, "float32"))


def operands(mod: object) -> list[str]:
    """Return the dtypes of each product's operands, and of its result."""
    products = [call for name, call in calls(mod) if name == "matmul"]
    return [" ".join(str(part.ty.dtype.dtype) for part in (*call.args, call)) for call in products]


ROWS = (("uint8", 0), ("uint8", 130), ("int8", 0), ("int8", -7))


@pytest.mark.parametrize("place", range(len(ROWS)))
@in_both_forms
def test_products_of_dequantised_values(place: int, form: str) -> None:
    """Weights have one scale or more, and lie turned or not: two of these four with each kind of rows, and each of the
    four in both forms."""
    (dtype, zero), other = ROWS[place], [*FORMS].index(form)
    scales, turned = (1, 6)[(place + other) % 2], (place // 2 + other) % 2 == 1

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        weights = matrix(b, (6, 9) if turned else (9, 6), 0 if turned else 1, scales=scales)
        return op.matmul(rows(b, x, zero), b.emit(op.permute_dims(weights)) if turned else weights)

    mod = apply(MultiplyBytes(FORMS[form]), build, [drawn(dtype, 2, 5, 9)])
    assert operands(mod) == [product_of(form)]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("zero", [None, "known", "of the run"])
@in_both_forms
def test_products_of_integers(dtype: str, zero: str | None, form: str) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, offset: relax.Var) -> relax.Expr:
        wide = b.emit(op.astype(x, "int32"))
        found = number(5, "int32") if zero == "known" else b.emit(op.astype(offset, "int32"))
        left = b.emit(op.subtract(wide, found)) if zero else wide
        weights = b.emit(op.astype(relax.const(drawn("int8", 9, 6, seed=1)), "int32"))
        return op.matmul(left, weights)

    mod = apply(MultiplyBytes(FORMS[form]), build, [drawn(dtype, 5, 9), np.array(7, dtype)])
    assert operands(mod) == [product_of(form)]


@in_both_forms
def test_weights_that_no_int8_holds_are_of_int16(form: str) -> None:
    """Of uint8 less a zero point of 30: -30 to 225."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        scale, zero = number(0.01), number(30, "uint8")
        weights = b.emit(op.dequantize(relax.const(drawn("uint8", 9, 6)), scale, zero, -1, "float32"))
        return op.matmul(rows(b, x, 200), weights)

    mod = apply(MultiplyBytes(FORMS[form]), build, [drawn("uint8", 5, 9)])
    assert operands(mod) == ["int16 int16 int32"]


def test_zero_points_that_may_be_no_bytes_are_left() -> None:
    """Of 70,000 no int16 holds what they leave."""

    def build(b: relax.BlockBuilder, x: relax.Var, zero: relax.Var) -> relax.Expr:
        left = b.emit(op.subtract(b.emit(op.astype(x, "int32")), zero))
        return op.matmul(left, b.emit(op.astype(relax.const(drawn("int8", 9, 6)), "int32")))

    arrays = [drawn("int8", 5, 9), np.array(70_000, "int32")]
    unchanged(MultiplyBytes(FORMS["pairs"]), build, arrays)
    assert operands(apply(MultiplyBytes(FORMS["fours"]), build, arrays)) == [product_of("fours")]


@pytest.mark.parametrize(("form", "once"), [("fours", "bitwise_xor"), ("pairs", "subtract")])
def test_products_of_the_same_bytes_share_what_is_made_of_them(form: str, once: str) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        left = rows(b, x, 1)
        first, second = (b.emit(op.matmul(left, matrix(b, (9, 6), 1, scales=scales))) for scales in (1, 6))
        return op.add(first, second)

    found = names(apply(MultiplyBytes(FORMS[form]), build, [drawn("int8", 5, 9)]))
    assert found[: found.index("matmul")].count(once) == 1
    assert found[found.index("matmul") :].count("astype") == 2


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("uint8", 130), ("int8", -7)])
@pytest.mark.parametrize("padding", [[0, 0, 0, 0], [1, 0, 2, 1]])
@in_both_forms
def test_convolutions_have_a_border_of_their_zero_point(
    dtype: str, zero: int, padding: list[int], form: str
) -> None:  # fmt: skip
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        scale, weights = np.linspace(0.01, 0.03, 4, dtype="float32"), drawn("int8", 4, 6, 3, 2)
        zeros = relax.const(np.zeros(4, "int8"))
        wide = b.emit(op.dequantize(relax.const(weights), relax.const(scale), zeros, 0, "float32"))
        return op.nn.conv2d(rows(b, x, zero), wide, strides=[2, 1], padding=padding)

    mod = apply(MultiplyBytes(FORMS[form]), build, [drawn(dtype, 2, 6, 7, 5)])
    (call,) = (call for name, call in calls(mod) if name == "nn.conv2d")
    assert " ".join(str(part.ty.dtype.dtype) for part in (*call.args, call)) == product_of(form)


@pytest.mark.parametrize("padding", [0, 1])
def test_a_border_that_only_the_run_knows_is_centred(padding: int) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, offset: relax.Var) -> relax.Expr:
        zero = b.emit(op.astype(offset, "int32"))
        centred = b.emit(op.subtract(b.emit(op.astype(x, "int32")), zero))
        weights = b.emit(op.astype(relax.const(drawn("int8", 4, 6, 3, 3)), "int32"))
        return op.nn.conv2d(centred, weights, padding=padding)

    mod = apply(MultiplyBytes(FORMS["fours"]), build, [drawn("uint8", 2, 6, 7, 5), np.array(7, "uint8")])
    (call,) = (call for name, call in calls(mod) if name == "nn.conv2d")
    form = "pairs" if padding else "fours"
    assert " ".join(str(part.ty.dtype.dtype) for part in (*call.args, call)) == product_of(form)


def quantised(b: relax.BlockBuilder, x: relax.Expr, scale: float, zero: int) -> relax.Expr:
    return op.quantize(x, number(scale), number(zero, "int8"), -1, "int8")


def test_bytes_are_moved_between_equal_quantisations() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        turned = b.emit(op.permute_dims(b.emit(op.reshape(rows(b, x, 4), (3, 3, 5))), [2, 0, 1]))
        return quantised(b, turned, 0.02, 4)

    assert names(apply(MultiplyBytes(FORMS["pairs"]), build, [drawn("int8", 5, 9)])) == ["reshape", "permute_dims"]


OTHERS: dict[str, Build] = {
    "another scale": lambda b, x: quantised(b, b.emit(op.reshape(rows(b, x, 4), (9, 5))), 0.03, 4),
    "another zero point": lambda b, x: quantised(b, b.emit(op.reshape(rows(b, x, 4), (9, 5))), 0.02, 5),
    "not moved": lambda b, x: quantised(b, rows(b, x, 4), 0.02, 4),
    "scales of k": lambda b, x: op.matmul(rows(b, x, 0), matrix(b, (9, 6), 0, scales=9)),
    "weights of float32": lambda b, x: op.matmul(rows(b, x, 0), relax.const(normal(9, 6))),
    "wide weights": lambda b, x: op.matmul(
        b.emit(op.astype(x, "int32")), relax.const(np.full((9, 6), 1 << 15, "int32"))
    ),
    "groups": lambda b, x: op.nn.conv2d(
        b.emit(op.reshape(rows(b, x, 0), (1, 9, 5, 1))),
        b.emit(op.dequantize(relax.const(drawn("int8", 9, 1, 2, 1)), number(0.1), number(0, "int8"), 0, "float32")),
        groups=9,
    ),
    "a vector": lambda b, x: op.matmul(rows(b, x, 0), relax.const(normal(9))),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    unchanged(MultiplyBytes(FORMS["fours"]), OTHERS[name], [drawn("int8", 5, 9)])


def test_a_model_without_bytes_is_not_made_anew() -> None:
    mod = module(lambda b, x: op.matmul(x, relax.const(normal(9, 6))), [normal(5, 9)])
    assert MultiplyBytes(FORMS["fours"])(mod).same_as(mod)


@in_both_forms
def test_sums_that_no_int32_holds_are_of_float32(form: str) -> None:
    """Of 70,000 products of 255 by 127; where the operator itself adds up in int32, they wrap as it does."""
    weights = np.full((70_000, 1), 127, "int8")

    def of_floats(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(rows(b, x, 0), b.emit(op.dequantize(relax.const(weights), number(0.1), number(0, "int8"), 0)))

    def of_integers(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(b.emit(op.astype(x, "int32")), b.emit(op.astype(relax.const(weights), "int32")))

    data = np.full((1, 70_000), 255, "uint8")
    unchanged(MultiplyBytes(FORMS[form]), of_floats, [data])
    assert operands(apply(MultiplyBytes(FORMS[form]), of_integers, [data])) == [product_of(form)]
