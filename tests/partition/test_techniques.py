"""Each technique can be left out: which operators share a kernel then, with the same results."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from backends.tensorir.roles import anchor_of
from fusion.bindings import Bindings
from partition.access import BATCH_MATMUL, find_anchors
from partition.form_groups import FormGroups
from partition.joins import MOST_MEMBERS, MOST_TERMS
from partition.products import MOST_PRODUCTS
from partition.techniques import ALL, Technique
from tests.partition.test_form_groups import legal
from tests.passes.modules import Build, evaluate, normal, weight

EPILOGUE, STITCHING, INTENSIVE = Technique.EPILOGUE, Technique.STITCHING, Technique.INTENSIVE
Q, K = normal(2, 8, 16), normal(2, 16, 8)


def attention(b: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
    """relu(softmax(exp(tanh(x y))) x): six operators, a softmax being one."""
    scores = b.emit(op.tanh(b.emit(op.matmul(x, y))))
    return op.nn.relu(b.emit(op.matmul(b.emit(op.nn.softmax(b.emit(op.exp(scores)))), x)))


def attentions(kernel: tirx.PrimFunc) -> str:
    """Take attentions, and no other kernel of several products or with what makes the rows of one."""
    kinds = [anchor_of(block) for block in find_anchors(kernel)]
    return "" if kinds == [BATCH_MATMUL, BATCH_MATMUL] else "not an attention"


def kernels(build: Build, techniques: frozenset[Technique], *arrays: np.ndarray) -> tuple[int, set[str]]:
    """Return how many kernels are left, whose results must agree, and why edges stayed."""
    mod = legal(build, list(arrays))
    groups = FormGroups(attentions, techniques).run(mod)
    merged = relax.transform.FuseTIR()(groups.mod)
    for got, want in zip(evaluate(merged, arrays), evaluate(mod, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    calls = [value for _, value in Bindings.of(merged["main"]).values.items() if isinstance(value, relax.Call)]
    return len(calls), {kept.reason for kept in groups.fact.kept}


@pytest.mark.parametrize(
    ("techniques", "expected"),
    [
        (frozenset(), 6),
        (frozenset({EPILOGUE}), 3),  # each product with what is elementwise behind it, and the softmax
        (frozenset({STITCHING}), 4),  # tanh, exp and softmax are one
        (frozenset({EPILOGUE, STITCHING}), 3),
        (frozenset({EPILOGUE, STITCHING, INTENSIVE}), 1),
        (ALL, 1),
    ],
)
def test_a_technique_that_is_left_out_makes_no_kernel(techniques: frozenset[Technique], expected: int) -> None:
    count, reasons = kernels(attention, techniques, Q, K)
    assert count == expected
    for technique in (EPILOGUE, STITCHING):
        said = any(technique.value in reason for reason in reasons)
        assert not said or technique not in techniques


def test_a_long_chain_becomes_several_kernels() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for _ in range(2 * MOST_MEMBERS):
            x = b.emit(op.tanh(x))
        return x

    count, reasons = kernels(build, ALL, normal(4, 16))
    assert count == 2
    assert reasons == {f"a kernel of more than {MOST_MEMBERS} operators"}


def test_products_of_one_value_become_kernels_of_a_few() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        x = b.emit(op.exp(x))
        return relax.Tuple([b.emit(op.matmul(x, weight(16, 8, seed=seed))) for seed in range(MOST_PRODUCTS + 3)])

    mod = legal(build, [normal(4, 16)])
    groups = FormGroups(lambda kernel: "").run(mod).fact
    # The first kernel makes the rows too.
    assert [len(formed.members) for formed in groups.formed if len(formed.members) > 1] == [1 + MOST_PRODUCTS, 3]


def test_an_expression_that_would_grow_without_end_becomes_several_kernels() -> None:
    """Each step reads what the one before makes twice, or three times in a choice."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for _ in range(12):
            x = b.emit(op.multiply(x, b.emit(op.subtract(relax.const(1.0), x))))
        for _ in range(4):
            x = b.emit(op.where(b.emit(op.less(x, relax.const(0.5))), b.emit(op.multiply(x, relax.const(1.5))), x))
        return x

    count, reasons = kernels(build, ALL, normal(4, 16))
    assert count == 3
    assert f"an expression of more than {MOST_TERMS} terms" in reasons


def test_squares_count_what_they_are_of_twice() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        for _ in range(12):
            x = b.emit(op.multiply(x, x))
        return x

    count, reasons = kernels(build, ALL, normal(4, 16))
    assert count == 2
    assert reasons == {f"an expression of more than {MOST_TERMS} terms"}
