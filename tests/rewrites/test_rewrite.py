"""The graph and the fixed point: what is kept, what dies, in which time."""

from __future__ import annotations

import time

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax
from tvm.relax import op

from fusion.bindings import Bindings
from fusion.rewrites import Rewrite
from tests.passes.modules import apply, calls, canonical, evaluate, module, names, normal, weight


def number(value: float) -> relax.Constant:
    return relax.const(np.float32(value))


def gelu(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    step = b.emit(op.add(b.emit(op.erf(b.emit(op.divide(x, number(2**0.5))))), number(1)))
    return b.emit(op.multiply(b.emit(op.multiply(x, step)), number(0.5)))


def test_a_module_without_a_pattern_is_returned_as_it_is() -> None:
    before = module(lambda b, x: op.exp(x), [normal(3)])
    assert Rewrite()(before) is before


def test_what_no_rule_touches_keeps_its_binding_and_names_are_kept() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return b.emit(op.tanh(gelu(b, b.emit(op.exp(x), "first"))), "last")

    before = module(build, [normal(3)])
    after = Rewrite()(before)
    kept, made = dict(Bindings.of(before["main"]).values.items()), dict(Bindings.of(after["main"]).values.items())
    assert [call for var, call in made.items() if kept.get(var) is not None and kept[var].same_as(call)]
    assert next(var.name for var, _ in Bindings.of(after["main"]).values.items()) == "first"
    assert {var.name for var in made} <= {var.name for var in kept}


def test_results_that_others_read_are_computed_once() -> None:
    """The half of a gelu that something else reads stays, and the gelu would compute it twice."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        step = b.emit(op.add(b.emit(op.erf(b.emit(op.multiply(x, number(0.5**0.5))))), number(1)))
        return relax.Tuple([b.emit(op.multiply(b.emit(op.multiply(x, step)), number(0.5))), step])

    after = apply(Rewrite(), build, [normal(3, 4)])
    assert "nn.gelu" not in names(after)


@pytest.mark.parametrize("output", ["alone", "in a tuple", "twice"])
def test_an_output_that_becomes_another_value(output: str) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = b.emit(op.exp(x))
        same = b.emit(op.multiply(y, number(1)))
        return {"alone": same, "in a tuple": relax.Tuple([same, x]), "twice": relax.Tuple([same, y, same])}[output]

    assert names(apply(Rewrite(), build, [normal(3)])) == ["exp"]


def test_an_operand_in_a_tuple_becomes_another_value() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        same = b.emit(op.add(x, number(0)))
        return op.concat([same, b.emit(op.exp(same)), same])

    assert names(apply(Rewrite(), build, [normal(3)])) == ["exp", "concat"]


def test_one_rewrite_makes_another_possible() -> None:
    """A layer normalisation that PyTorch writes as eight operators, in front of a sum of constants."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        centred = b.emit(op.subtract(x, b.emit(op.mean(x, [1], keepdims=True))))
        square = b.emit(op.mean(b.emit(op.multiply(centred, centred)), [1], keepdims=True))
        made = op.divide(centred, b.emit(op.sqrt(b.emit(op.add(square, number(1e-6))))))
        scaled = b.emit(op.add(b.emit(op.multiply(weight(4, 1, 1), made)), weight(4, 1, 1, seed=1)))
        return op.add(b.emit(op.add(scaled, number(1))), number(2))

    after = apply(Rewrite(), build, [normal(2, 4, 5, 6)])
    ((name, norm),) = calls(after)
    assert name == "nn.layer_norm"
    assert [int(axis) for axis in norm.attrs.axes] == [1]


def test_dead_bindings_do_not_count_as_readers() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        doubled = b.emit(op.multiply(x, number(2)))
        b.emit(op.exp(b.emit(op.tanh(doubled))))
        return op.multiply(doubled, number(3))

    inputs = [relax.Var("x", relax.TensorType((3,), "float32"))]
    builder = relax.BlockBuilder()
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(build(builder, *inputs))
        builder.emit_func_output(result)
    assert names(Rewrite()(builder.get())) == ["multiply"]


@pytest.mark.parametrize("shape", ["chain", "fan"])
def test_ten_thousand_operators_take_linear_time(shape: str) -> None:
    """A chain of which all but a few go, and one value that all read: CPU time for ten times as many."""

    def build(count: int) -> object:
        def chain(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
            y = x
            for place in range(count // 4):
                part = b.emit(op.exp(x if shape == "fan" else y))
                shifted = b.emit(op.add(y, number(1)))
                y = b.emit(op.add(shifted, part) if place % 9 else op.multiply(y, number(2)))
            return y

        return module(chain, [normal(4)])

    few, many = build(1_000), build(10_000)
    of_few, of_many = [], []
    for _ in range(3):  # the best of them: a neighbour on the host slows any single one
        of_few.append(cpu_seconds(few))
        of_many.append(cpu_seconds(many))
        if is_linear := min(of_many) < min(40 * min(of_few) + 0.05, 10):
            break
    assert is_linear, (of_few, of_many)


def cpu_seconds(mod: tvm.IRModule) -> float:
    """Return what the rewriting of a module takes, of which a valid one comes."""
    start = time.process_time()
    after = Rewrite()(mod)
    taken = time.process_time() - start
    relax.analysis.well_formed(after)
    return taken


def test_a_cascade_of_dead_values_is_not_recursive() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        y = x
        for _ in range(3_000):
            y = b.emit(op.add(y, number(0)))
        return y

    before = module(build, [normal(3)])
    after = canonical(Rewrite()(before))
    assert not calls(after)
    np.testing.assert_array_equal(evaluate(after, [normal(3)])[0], normal(3))


def test_sizes_that_only_the_data_tells_are_left_alone() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        found = b.emit(op.nonzero(x))
        return op.multiply(b.emit(op.astype(found, "float32")), relax.const(np.ones((1, 5), "float32")))

    before = module(build, [normal(5)])
    assert Rewrite()(before) is before


def test_the_notes_say_what_was_done_and_why_not() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.add(b.emit(op.add(gelu(b, x), number(3))), number(-3))

    log = Rewrite().run(module(build, [normal(4)])).fact
    assert log.notes() == [
        "rewritten: 1 gelu, 1 reciprocal",
        "add of 'gv': not rewritten by shift_behind: the constants cancel: that may be meant to round",
    ]


def test_the_input_is_untouched() -> None:
    before, same = (module(lambda b, x: gelu(b, x), [normal(3)]) for _ in range(2))
    Rewrite()(before)
    assert tvm_ffi.structural_equal(before, same)
