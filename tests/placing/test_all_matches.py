"""Each form of each pattern is matched at each operator; none that comes first hides another."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import DFPattern, is_op, wildcard
from tvm.relax.transform import FusionPattern, PatternCheckContext

from fusion.passes.regions.matches import all_matches
from fusion.passes.regions.read import RegionGraph, read_regions

SHAPE = (4, 4)


def two_products() -> RegionGraph:
    """Return a = x @ w; b = x @ v; c = a + b; d = relu(c); e = c * d."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(SHAPE, "float32"))
    w, v = (relax.const(np.full(SHAPE, value, "float32")) for value in (1.0, 2.0))
    with builder.function("main", [x]):
        with builder.dataflow():
            a = builder.emit(relax.op.matmul(x, w), "a")
            b = builder.emit(relax.op.matmul(x, v), "b")
            c = builder.emit(relax.op.add(a, b), "c")
            d = builder.emit(relax.op.nn.relu(c), "d")
            result = builder.emit_output(relax.op.multiply(c, d), "e")
        builder.emit_func_output(result)
    return read_regions(tvm.IRModule({"main": builder.finalize()["main"]}))


def matmul() -> DFPattern:
    return is_op("relax.matmul")(wildcard(), wildcard())


def added(product: DFPattern) -> DFPattern:
    return is_op("relax.add")(product, wildcard()) | is_op("relax.add")(wildcard(), product)


def matched(patterns: Mapping[str, DFPattern], **checks: Any) -> list[tuple[str, str]]:
    """Return the names of the operators of each match, and its pattern."""
    found = two_products()
    made = [FusionPattern(name, pattern, check=checks.get(name)) for name, pattern in patterns.items()]
    library: Any = SimpleNamespace(patterns=made)
    matches = all_matches(found, library)
    return [("".join(found.graph.names[each] for each in sorted(part)), name) for part, name in matches.items()]


def test_matches_with_operators_in_common() -> None:
    """Either product with the sum, each product alone, and the sum with what is behind it."""
    relu = is_op("relax.nn.relu")
    patterns = {"long": relu(added(matmul())), "sum": added(matmul()), "product": matmul(), "relu": relu(wildcard())}
    assert matched(patterns) == [
        ("acd", "long"), ("bcd", "long"), ("ac", "sum"), ("bc", "sum"), ("a", "product"), ("b", "product"),
        ("d", "relu"),
    ]  # fmt: skip


def test_of_the_same_operators_the_first_pattern_and_what_fails_a_check_is_none() -> None:
    asked: list[str] = []

    def check(context: PatternCheckContext) -> bool:
        asked.append(str(context.matched_expr.op.name))
        return False

    assert matched({"one": matmul(), "other": matmul()}) == [("a", "one"), ("b", "one")]
    assert matched({"one": matmul(), "other": matmul()}, one=check) == [("a", "other"), ("b", "other")]
    assert asked == ["relax.matmul"] * 2


def test_what_is_there_twice_is_one_operand() -> None:
    """The sum that both the relu and the product of the end read."""
    total = added(matmul())
    assert matched({"same": is_op("relax.multiply")(total, is_op("relax.nn.relu")(total))}) == [
        ("acde", "same"), ("bcde", "same"),
    ]  # fmt: skip
    others = is_op("relax.multiply")(added(matmul()), is_op("relax.nn.relu")(added(matmul())))
    assert {name for name, _ in matched({"other": others})} == {"acde", "bcde", "abcde"}


def test_calls_with_more_operands_than_their_pattern() -> None:
    total = is_op("relax.add")(matmul() | is_op("relax.nn.relu")(wildcard()), varg_default_wildcard=True)
    assert [name for name, _ in matched({"any": total})] == ["ac"]
