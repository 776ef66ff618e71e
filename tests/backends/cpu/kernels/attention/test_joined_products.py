"""Attention becomes one group, and stays in parts with a reason where it must."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from backends.cpu.kernels.attention.read import AttentionStages, Chain
from backends.cpu.kernels.priority import recognise
from fusion.declined import Declined
from partition.profitability import no_template
from tests.backends.cpu.kernels import joined
from tests.passes.modules import Build, normal, weight

Q, K, V = normal(2, 3, 20, 8), normal(2, 3, 8, 24), normal(2, 3, 24, 8)


def read_chain(kernel: tirx.PrimFunc) -> Chain:
    """Return the chain of an attention.

    Raises:
        Declined: It is none.
    """
    _, parts = recognise(kernel)
    if not isinstance(parts, AttentionStages):
        raise Declined("not an attention")
    return parts.chain


def grouped(build: Build, *arrays: np.ndarray, reason: str = "") -> tuple[int, list[str], list[Chain]]:
    """Return how many kernels are left, why edges stayed, and the chains that were asked for."""
    return joined.grouped(build, arrays, read_chain, reason)


def attention(b: relax.BlockBuilder, q: relax.Expr, k: relax.Expr, v: relax.Expr) -> relax.Expr:
    scores = b.emit(op.multiply(op.matmul(q, k), relax.const(np.float32(0.5))))
    return b.emit(op.matmul(b.emit(op.nn.softmax(scores, -1)), v))


def test_attention_and_what_is_behind_it_is_one_kernel() -> None:
    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        return op.nn.relu(op.add(attention(b, q, k, v), weight(8)))

    assert grouped(build, Q, K, V) == (1, [], [Chain(batch=6, rows=20, depth=8, keys=24, channels=8)])


def _heads(b: relax.BlockBuilder, *operands: relax.Expr) -> list[relax.Expr]:
    """Return queries, transposed keys and values of operands that lie as [batch, place, head, channel]."""
    turns = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    return [b.emit(op.permute_dims(x, axes)) for x, axes in zip(operands, turns, strict=True)]


def test_the_kernel_reads_operands_as_they_lie() -> None:
    lying = [np.ascontiguousarray(x.transpose(axes)) for x, axes in ((Q, (0, 2, 1, 3)), (K, (0, 3, 1, 2)))]

    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        return attention(b, *_heads(b, q, k, v))

    arrays = [*lying, np.ascontiguousarray(V.transpose(0, 2, 1, 3))]
    assert grouped(build, *arrays)[0] == 1
    assert grouped(build, *arrays, reason="no")[0] == 6


def test_a_transpose_that_others_read_stays_a_kernel() -> None:
    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        turned = b.emit(op.permute_dims(k, [0, 1, 3, 2]))
        return relax.Tuple([attention(b, q, turned, v), turned])

    assert grouped(build, Q, np.ascontiguousarray(K.transpose(0, 1, 3, 2)), V)[0] == 2


def test_a_transpose_that_is_both_operands() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, v: relax.Var) -> relax.Expr:
        turned = b.emit(op.permute_dims(x, [0, 2, 1, 3]))
        return attention(b, turned, turned, v)

    assert grouped(build, normal(2, 8, 3, 8), normal(2, 3, 8, 8))[0] == 1


def test_queries_whose_rows_are_not_contiguous_are_transposed_before() -> None:
    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        return attention(b, b.emit(op.permute_dims(q, [0, 1, 3, 2])), k, v)

    assert grouped(build, np.ascontiguousarray(Q.transpose(0, 1, 3, 2)), K, V)[0] == 2


def test_the_judge_keeps_a_chain_in_parts() -> None:
    kernels, reasons, _ = grouped(attention, Q, K, V, reason="too long")
    assert kernels == 3
    assert "too long" in reasons
    assert no_template(tirx.PrimFunc([], tirx.Evaluate(0)))


def _scores_returned(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
    scores = b.emit(op.matmul(q, k))
    return relax.Tuple([scores, b.emit(op.matmul(b.emit(op.nn.softmax(scores, -1)), v))])


def _weights_read_twice(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
    weights = b.emit(op.nn.softmax(b.emit(op.matmul(q, k)), -1))
    return op.add(b.emit(op.matmul(weights, v)), b.emit(op.mean(weights, [-1], keepdims=True)))


def _values_of_the_weights(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
    weights = b.emit(op.nn.softmax(b.emit(op.matmul(q, k)), -1))
    return op.matmul(weights, b.emit(op.permute_dims(weights, [0, 1, 3, 2])))


def _values_behind_the_scores(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
    scores = b.emit(op.matmul(q, k))
    bent = b.emit(op.matmul(b.emit(op.permute_dims(scores, [0, 1, 3, 2])), weight(20, 8)))
    return op.matmul(b.emit(op.nn.softmax(scores, -1)), bent)


def _other_batch(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
    shared = b.emit(op.matmul(b.emit(op.strided_slice(q, [0], [0], [1])), b.emit(op.strided_slice(k, [0], [0], [1]))))
    return op.matmul(b.emit(op.nn.softmax(shared, -1)), v)


def _softmax_over_rows(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
    return op.matmul(b.emit(op.nn.softmax(b.emit(op.matmul(q, k)), -2)), v)


def _no_first_product(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
    return op.matmul(b.emit(op.nn.softmax(q, -1)), k)


DECLINED: dict[str, tuple[Build, str]] = {
    "the scores are returned": (_scores_returned, "used elsewhere"),
    "the weights are read twice": (_weights_read_twice, "used elsewhere"),
    "both operands from one group": (_values_of_the_weights, "used elsewhere"),
    "the values depend on the scores": (_values_behind_the_scores, "used elsewhere"),
    "weights shared by batches": (_other_batch, "other batches"),
    "a softmax over another axis": (_softmax_over_rows, "complex operator"),
    "no product before": (_no_first_product, "no product makes the rows"),
}


@pytest.mark.parametrize("name", DECLINED)
def test_chains_decline_with_a_reason(name: str) -> None:
    build, reason = DECLINED[name]
    kernels, reasons, asked = grouped(build, Q, K, V)
    assert kernels >= 2
    assert any(reason in given for given in reasons), reasons
    assert not asked


def test_products_and_what_stands_between_and_behind_are_one_kernel() -> None:
    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        scores = b.emit(op.nn.relu(b.emit(op.multiply(b.emit(op.matmul(q, k)), relax.const(np.float32(0.5))))))
        return op.add(b.emit(op.matmul(scores, v)), weight(8))

    assert grouped(build, Q, K, V) == (1, [], [Chain(batch=6, rows=20, depth=8, keys=24, channels=8)])
    kernels, reasons, _ = grouped(build, Q, K, V, reason="no gain")
    assert kernels == 2
    assert "no gain" in reasons


def test_products_read_operands_as_they_lie() -> None:
    lying = [np.ascontiguousarray(x.transpose(axes)) for x, axes in ((Q, (0, 2, 1, 3)), (K, (0, 3, 1, 2)))]

    def build(b: relax.BlockBuilder, *operands: relax.Var) -> relax.Expr:
        q, k, v = _heads(b, *operands)
        return op.matmul(b.emit(op.matmul(q, k)), v)

    assert grouped(build, *lying, np.ascontiguousarray(V.transpose(0, 2, 1, 3)))[0] == 1


def test_of_three_products_the_attention_is_one_kernel() -> None:
    """It is worth more than a chain of the first two."""

    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        return attention(b, b.emit(op.matmul(b.emit(op.matmul(q, k)), v)), k, v)

    kernels, _, asked = grouped(build, Q, K, V)
    assert kernels == 2
    assert asked[0] == Chain(batch=6, rows=20, depth=8, keys=24, channels=8)


def test_products_that_others_read_stay_apart() -> None:
    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        scores = b.emit(op.matmul(q, k))
        return relax.Tuple([scores, b.emit(op.matmul(scores, v))])

    kernels, reasons, asked = grouped(build, Q, K, V)
    assert (kernels, asked) == (2, [])
    assert "a value between the products is used elsewhere" in reasons


def test_a_mask_that_depends_on_the_scores_through_another_kernel() -> None:
    """The scores of one head mask those of another: each is a kernel, and none reads itself."""

    def build(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
        first = attention(b, q, k, v)
        return attention(b, first, k, b.emit(op.matmul(b.emit(op.permute_dims(k, [0, 1, 3, 2])), weight(8, 8))))

    kernels, _, asked = grouped(build, Q, K, V)
    assert len(asked) == 1  # they are the same but for names
    assert kernels == 4  # two attentions, a transpose, a product
