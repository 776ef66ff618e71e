"""`precision=`: what runs, what is refused, and what it costs."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tvm
from tvm import relax

import fusion
from fusion import context
from fusion.errors import OptionError, TargetError
from tests.passes.modules import module, normal, weight

HASWELL = "llvm -mcpu=haswell"
DATA, WEIGHT = normal(17, 65), weight(65, 40)


def product() -> tvm.IRModule:
    return module(lambda b, x: relax.op.matmul(x, WEIGHT), [DATA])


def errors(precision: str, target: str = "llvm") -> tuple[float, float]:
    """Return the largest error of a product against float64, and against float64 on rounded operands."""
    compiled = fusion.compile(product(), target, precision=precision)
    (name,) = (spec.name for spec in compiled.inputs)
    (got,) = compiled.run({name: DATA}).values()
    exact, rounded = (
        np.matmul(*(part.astype(kind).astype("float64") for part in (DATA, WEIGHT.value.numpy())))
        for kind in ("float64", ml_dtypes.bfloat16)
    )
    return float(np.abs(got - exact).max()), float(np.abs(got - rounded).max())


@pytest.mark.skipif(
    bool(context.resolve().compiler.why_not_precision("bf16")), reason="this CPU has no instructions for bfloat16"
)
@pytest.mark.parametrize("precision", ["bf16", "bf16-or-fp32"])
def test_operands_are_rounded_and_sums_are_not(precision: str) -> None:
    exact, rounded = errors(precision)
    assert exact > 1e-2
    assert rounded < 1e-4


@pytest.mark.parametrize(("precision", "target"), [("fp32", "llvm"), ("bf16-or-fp32", HASWELL)])
def test_float32_where_it_is_asked_for_or_the_cpu_has_no_other(precision: str, target: str) -> None:
    exact, rounded = errors(precision, target)
    assert exact < 1e-4
    assert rounded > 1e-2


def test_a_cpu_without_the_instructions_is_an_error() -> None:
    with pytest.raises(TargetError, match=r"no instruction for bfloat16.*(?s:.*)bf16-or-fp32"):
        context.resolve(HASWELL, precision="bf16")


def test_tfloat32_is_of_cuda_devices() -> None:
    with pytest.raises(TargetError, match="no instruction for tfloat32") as error:
        context.resolve(precision="tf32")
    assert 'precision="fp32"' in error.value.hint
    for precision, rounds in (("tf32", True), ("fp32", False)):
        ctx = context.resolve("cuda -arch=sm_80", precision=precision)
        assert (ctx.precision, ctx.compiler.tfloat32) == (precision, rounds)  # type: ignore[attr-defined]


@pytest.mark.parametrize("precision", ["fp16", "", None, 16])
def test_unknown_precisions_are_refused(precision: object) -> None:
    with pytest.raises(OptionError, match="use one of fp32, bf16, bf16-or-fp32"):
        context.resolve(precision=precision)  # type: ignore[arg-type]
