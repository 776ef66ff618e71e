"""Dimensions that are open, as symbols: those of one name have one size, and others are told apart."""

from __future__ import annotations

import pytest

from fusion.signature import TensorSpec
from fusion.symbolic.open_dims import OpenDims


def dims_of(*specs: tuple[tuple[int | None, ...], tuple[str, ...]]) -> OpenDims:
    found = OpenDims.of([TensorSpec(f"x{place}", shape, "float32", axes) for place, (shape, axes) in enumerate(specs)])
    assert found is not None
    return found


def test_symbols_have_names_that_tensorir_takes() -> None:
    dims = dims_of(((None, 8, None), ("2 b", "", "a.b-c")), ((None,), ()))
    assert dims.symbols == ("_2_b", "a_b_minus_c", "x1_0")
    assert dims.shapes({"_2_b": 1, "a_b_minus_c": 2, "x1_0": 3}) == {"x0": (1, 8, 2), "x1": (3,)}
    assert OpenDims.of([TensorSpec("x", None, "float32")]) is None


def test_sizes_are_those_of_all_inputs_or_none() -> None:
    dims = dims_of(((None, 8), ("b", "")), ((None, None), ("b", "l")))
    assert dims.sizes([(3, 8), (3, 0)]) == {"b": 3, "l": 0}
    for shapes in ([(3, 8), (4, 5)], [(3, 9), (3, 5)], [(3,), (3, 5)], [(3, 8, 1), (3, 5)]):
        assert dims.sizes(shapes) is None


@pytest.mark.parametrize("count", [1, 2, 4])
def test_no_two_symbols_are_seen_at_the_same_sizes(count: int) -> None:
    names = [f"n{place}" for place in range(count)]
    dims = dims_of(*(((None, None), (name, f"inner_{name}")) for name in names))
    choices = list(dims.probes())
    assert choices
    for probes in choices:
        sizes = [size for probe in probes for size in probe.values()]
        assert len(set(sizes)) == 4 * count
        assert all(probe.keys() == set(dims.symbols) for probe in probes)


def test_too_many_symbols_have_no_sizes() -> None:
    assert not list(dims_of(*[((None,), ())] * 40).probes())
