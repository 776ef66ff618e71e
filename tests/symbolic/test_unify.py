"""What a model's forms at several sizes have in common becomes one function with symbols, or is declined."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm_ffi.structural import structural_equal

from backends.tensorir.symbols import bind, symbols_of
from fusion.declined import Declined
from fusion.extents import Extent, Sizes
from fusion.symbolic.choose_probes import choose_further
from fusion.symbolic.fit import Fit
from fusion.symbolic.open_dims import OpenDims
from tests.backends.cpu.kernels.anchored import one_kernel
from tests.symbolic.unified import unified

PROBES = ({"rows": 11, "columns": 127}, {"rows": 11, "columns": 131}, {"rows": 13, "columns": 131})
FIT = Fit(PROBES)


def _legal(rows: int, columns: int) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((rows, columns, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            flat = builder.emit(relax.op.reshape(x, (rows * columns, 4)))
            out = builder.emit_output(relax.op.add(flat, relax.const(np.ones(4, "float32"))))
        builder.emit_func_output(out)
    return relax.transform.LegalizeOps()(builder.finalize())


def test_functions_with_symbols_are_the_static_ones_at_their_sizes() -> None:
    forms = [_legal(*sizes.values()) for sizes in PROBES]
    for symbol in forms[0].functions:
        if symbol.name_hint == "main":
            main = unified([form["main"] for form in forms], FIT)
            assert str(main.ret_ty.shape.values[0]) == "columns * rows"
            assert main.params[0].ty.shape.values[0].same_as(main.ret_ty.shape.values[0].b)
        else:
            func = unified([form[symbol.name_hint] for form in forms], FIT)
            assert {var.name for var in symbols_of(func)} == {"rows", "columns"}
            for form, sizes in zip(forms, PROBES, strict=True):
                assert structural_equal(bind(func, sizes), form[symbol.name_hint])


def test_what_does_not_depend_on_the_sizes_stays_as_it_is() -> None:
    func = _legal(2, 3)["add"]
    assert unified([func] * 3, FIT) is func


def test_numbers_that_no_pass_makes_of_the_sizes_are_products_of_extents_or_in_doubt() -> None:
    """1131 and 1845 are on a line of batches of 2 and 3 as any two numbers are."""
    probes = ({"n": 2, "h": 31, "w": 41}, {"n": 3, "h": 47, "w": 43})
    height, width = Extent(-2, 1, ("h",)), Extent(-2, 1, ("w",))
    fit = Fit(probes, [height, width])
    assert set(fit.product([29 * 39, 45 * 41])) == {Extent(1), height, width}
    assert fit.has_doubts
    assert set(fit.product([16 * 29 * 39, 16 * 45 * 41])) == {Extent(16), height, width}
    assert fit.product([31 * 41, 47 * 43]) == (Extent(0, 1, ("h", "w")),)
    unsure = Fit(probes)
    unsure.extent([1131, 1845])
    assert unsure.has_doubts


def test_a_product_that_is_almost_a_multiple_of_the_batch_is_in_doubt() -> None:
    """33 * 39 and 47 * 41 pixels are also 640 batches of 2 and 3, and 7 more."""
    probes = ({"n": 2, "h": 33, "w": 41}, {"n": 3, "h": 47, "w": 43})
    width = Extent(-2, 1, ("w",))
    fit = Fit(probes, [width])
    fit.product([33 * 39, 47 * 41])
    assert fit.has_doubts
    third = {"n": 5, "h": 89, "w": 53}
    assert set(Fit((*probes, third), [width]).product([33 * 39, 47 * 41, 89 * 51])) == {
        Extent(1), Extent(0, 1, ("h",)), width
    }  # fmt: skip


def test_a_number_is_of_the_symbols_that_the_function_has() -> None:
    """80 rows of an image are 160 of its half where that is all of it: the kernel of the half knows no other."""
    probes = ({"image": 50, "part": 25}, {"image": 90, "part": 45})

    def flat(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        rows = int(x.ty.shape.values[0])
        return relax.op.nn.relu(b.emit(relax.op.reshape(x, (rows * 160,))))

    def kernel(rows: int) -> tvm.tirx.PrimFunc:
        return one_kernel(flat, [np.zeros((rows, 160), "float32")])

    fit = Fit(probes, {Extent(0, 1, ("part",)), Extent(0, 1, ("image",))})
    assert fit.extent((25 * 160, 45 * 160)) == Extent(0, 80, ("image",)), "it is likelier where nothing is known"
    func = unified([kernel(sizes["part"]) for sizes in probes], fit)
    assert {var.name for var in symbols_of(func)} == {"part"}
    assert structural_equal(bind(func, {"part": 7}), kernel(7))


def test_padded_numbers_are_not_of_the_batch_for_want_of_their_own_symbol() -> None:
    """A kernel with a batch, a padded width and pixels in one: of batches of 2 and 3 all of these are lines."""
    near = ({"b": 2, "h": 9, "w": 13}, {"b": 3, "h": 19, "w": 23})
    dims = OpenDims(("x",), (("b", "h", "w"),))
    own, known = {"b"}, {Extent(0, 1, (name,)) for name in "bhw"}
    padded, pixels = Extent(2, 1, ("w",)), Extent(0, 1, ("h", "w"))

    def at(extent: Extent, probes: Sequence[Sizes]) -> list[int]:
        return [extent.at(sizes) for sizes in probes]

    two = Fit(near, known)
    assert two.extent_of(own, at(pixels, near)) == pixels, "no pass makes 320 * b - 523"
    assert two.extent(at(padded, near)) == padded
    two = Fit(near, known)
    assert two.extent_of(own, at(padded, near)) in (padded, Extent(-5, 10, ("b",)))
    assert two.has_doubts
    probes = (*near, choose_further(dims, near, dict.fromkeys("bhw", 4096)))
    three = Fit(probes, known)
    assert [three.extent_of(own, at(each, probes)) for each in (padded, pixels)] == [padded, pixels]

    def padding(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.add(x, relax.const(np.float32(1)))

    def kernel(sizes: Sizes) -> tvm.tirx.PrimFunc:
        return one_kernel(padding, [np.zeros((sizes["b"], padded.at(sizes), pixels.at(sizes)), "float32")])

    func, other = unified(list(map(kernel, probes)), three), {"b": 7, "h": 5, "w": 31}
    assert structural_equal(bind(func, other), kernel(other))


@pytest.mark.parametrize("largest", [4096, 77])
@pytest.mark.parametrize("names", ["b", "bh", "bhw", "bhwd"])
def test_a_third_choice_is_on_no_line_through_both(names: str, largest: int) -> None:
    dims = OpenDims(("x",), (tuple(names),))
    near = next(dims.probes())
    bounds = {name: largest if name == "b" else 4096 for name in names}
    third = choose_further(dims, near, bounds)
    assert all(near[1][name] < third[name] <= bounds[name] for name in names)
    steps = [Fraction(third[name] - near[1][name], near[1][name] - near[0][name]) for name in names]
    assert len(set(steps)) == len(steps)


def test_a_third_choice_has_the_same_step_where_a_model_takes_no_other() -> None:
    near = ({"b": 2, "h": 9}, {"b": 3, "h": 19})
    dims = OpenDims(("x",), (("b", "h"),))
    assert choose_further(dims, near, {"b": 5, "h": 40}) == {"b": 5, "h": 39}
    with pytest.raises(Declined, match="too few sizes"):
        choose_further(dims, near, {"b": 4, "h": 40})


def test_a_mean_divides_by_an_open_number_of_elements() -> None:
    def means(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.mean(x, [0, 1])

    forms = [one_kernel(means, [np.zeros((*sizes.values(), 4), "float32")]) for sizes in PROBES]
    func, sizes = unified(forms, FIT), {"rows": 5, "columns": 7}
    assert structural_equal(bind(func, sizes), one_kernel(means, [np.zeros((5, 7, 4), "float32")]))


def test_functions_that_differ_in_more_than_numbers_are_declined() -> None:
    plain, other = _legal(11, 127)["add"], _legal(11, 131)["reshape"]
    with pytest.raises(Declined, match="another"):
        unified([plain, other], Fit(PROBES[:2]))


@pytest.mark.parametrize(
    ("values", "extent"),
    [
        ((127, 131, 131), Extent(0, 1, ("columns",))),
        ((126, 130, 130), Extent(-1, 1, ("columns",))),
        ((11 * 127, 11 * 131, 13 * 131), Extent(0, 1, ("columns", "rows"))),
        ((2 * 127**2, 2 * 131**2, 2 * 131**2), Extent(0, 2, ("columns", "columns"))),
        ((7, 7, 7), Extent(7)),
    ],
)
def test_extents_are_found_from_what_they_are_at_the_probes(values: tuple[int, ...], extent: Extent) -> None:
    assert FIT.extent(values) == extent
    assert tuple(map(extent.at, PROBES)) == values


def test_a_half_of_a_size_is_no_extent() -> None:
    with pytest.raises(Declined, match=r"63 at .*columns.: 127"):
        FIT.extent((63, 65, 65))
