"""The algebra of storage orders against NumPy: a tensor in an order is `logical.transpose(order)`, contiguous."""

from __future__ import annotations

from math import prod

import numpy as np
import tvm
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import relax

from fusion.passes.layout import order as orders
from fusion.passes.layout.placed import Placed, move
from tests.passes.modules import calls, evaluate

EXAMPLES = settings(max_examples=100, deadline=None, derandomize=True, database=None)
Shape = tuple[int, ...]


@st.composite
def tensors(draw: st.DrawFn, max_rank: int = 5) -> tuple[Shape, Shape]:
    """Draw a shape, ones more often than not, and an order of its axes."""
    shape = draw(st.lists(st.sampled_from([1, 1, 2, 3, 4, 6]), max_size=max_rank))
    return tuple(shape), tuple(draw(st.permutations(range(len(shape)))))


def numbered(shape: Shape) -> np.ndarray:
    return np.arange(prod(shape)).reshape(shape)


def memory(logical: np.ndarray, order: Shape) -> list[int]:
    """Return the elements as they lie in memory."""
    return logical.transpose(order).ravel().tolist()


@EXAMPLES
@given(tensors(), st.randoms(use_true_random=False))
def test_a_transpose_renames_the_axes_of_what_is_stored(tensor: tuple[Shape, Shape], random) -> None:
    shape, order = tensor
    axes = tuple(random.sample(range(len(shape)), len(shape)))
    logical = numbered(shape)
    assert memory(logical.transpose(axes), orders.permuted(order, axes)) == memory(logical, order)


@EXAMPLES
@given(tensors(), st.randoms(use_true_random=False))
def test_same_storage_says_whether_memory_is_the_same(tensor: tuple[Shape, Shape], random) -> None:
    shape, first = tensor
    second = tuple(random.sample(range(len(shape)), len(shape)))
    same = memory(numbered(shape), first) == memory(numbered(shape), second)
    assert orders.same_storage(first, second, shape) == same
    assert orders.same_storage(first, first, shape)


@EXAMPLES
@given(tensors())
def test_last_axis_is_the_one_with_stride_one(tensor: tuple[Shape, Shape]) -> None:
    shape, order = tensor
    stored = np.ascontiguousarray(numbered(shape).transpose(order))
    for axis, extent in enumerate(shape):
        stride = stored.strides[order.index(axis)] // stored.itemsize
        assert orders.last_axis_is(order, axis, shape) == (extent == 1 or stride == 1)


@st.composite
def reshapes(draw: st.DrawFn) -> tuple[Shape, Shape, Shape]:
    """Draw two shapes of as many elements, made of the same factors cut at other places, and an order of the first."""
    factors = draw(st.lists(st.sampled_from([1, 2, 3, 5]), max_size=5))
    shapes = []
    for _ in range(2):
        cuts = sorted(draw(st.lists(st.integers(0, len(factors)), max_size=4)))
        shapes.append(tuple(prod(factors[i:j]) for i, j in zip([0, *cuts], [*cuts, len(factors)], strict=True)))
    return shapes[0], shapes[1], tuple(draw(st.permutations(range(len(shapes[0])))))


@EXAMPLES
@given(reshapes())
def test_reshape_keeps_memory_from_the_needed_order_to_the_result(case: tuple[Shape, Shape, Shape]) -> None:
    old, new, order = case
    needed, result = orders.reshape(order, old, new)
    assert sorted(needed) == list(range(len(old)))
    assert sorted(result) == list(range(len(new)))
    logical = numbered(old)
    assert memory(logical, needed) == memory(logical.reshape(new), result)


@EXAMPLES
@given(reshapes())
def test_reshape_moves_nothing_from_row_major_storage(case: tuple[Shape, Shape, Shape]) -> None:
    old, new, _ = case
    needed, result = orders.reshape(orders.identity(len(old)), old, new)
    assert needed == orders.identity(len(old))
    assert orders.same_storage(result, orders.identity(len(new)), new)


@EXAMPLES
@given(tensors())
def test_splitting_axes_moves_nothing_in_any_order(tensor: tuple[Shape, Shape]) -> None:
    shape, order = tensor
    needed, _ = orders.reshape(order, shape, tuple(n for extent in shape for n in (extent, 1)))
    assert orders.same_storage(needed, order, shape)


def test_empty_tensors() -> None:
    needed, result = orders.reshape((1, 0), (0, 3), (3, 0, 2))
    assert sorted(needed) == [0, 1]
    assert sorted(result) == [0, 1, 2]


def test_channels_last() -> None:
    assert orders.channels_last(4) == (0, 2, 3, 1)
    assert orders.stored_shape(orders.channels_last(4), (1, 3, 8, 9)) == (1, 8, 9, 3)


@settings(EXAMPLES, max_examples=6)
@given(tensors(4), st.randoms(use_true_random=False))
def test_move_brings_data_from_one_order_to_another(tensor: tuple[Shape, Shape], random) -> None:
    shape, start = tensor
    end = tuple(random.sample(range(len(shape)), len(shape)))
    logical = numbered(shape).astype("float32")
    stored = np.ascontiguousarray(logical.transpose(start))
    source = relax.Var("x", relax.TensorType(stored.shape, "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [source]):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(move(builder, Placed(source, start, shape), end)))
        builder.emit_func_output(result)
    mod = relax.transform.CanonicalizeBindings()(builder.get())
    (moved,) = evaluate(mod, [stored])
    np.testing.assert_array_equal(moved, logical.transpose(end))
    moves = [name for name, _ in calls(mod) if name == "permute_dims"]
    assert bool(moves) == (not orders.same_storage(start, end, shape))


@EXAMPLES
@given(tensors(), st.randoms(use_true_random=False))
def test_constants_are_moved_when_compiling(tensor: tuple[Shape, Shape], random) -> None:
    shape, start = tensor
    end = tuple(random.sample(range(len(shape)), len(shape)))
    logical = numbered(shape).astype("float32")
    placed = Placed(relax.const(np.ascontiguousarray(logical.transpose(start))), start, shape)
    moved = move(relax.BlockBuilder(), placed, end)
    assert isinstance(moved, tvm.ir.GenericConst)
    np.testing.assert_array_equal(moved.value.numpy(), logical.transpose(end))
