"""A tensor together with the order it is stored in, and the one place that moves data between orders."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import relax
from tvm.ir import GenericConst

from fusion.constants import reshaped, transposed
from fusion.passes.layout import order as orders
from fusion.passes.layout.order import Order, Shape
from fusion.shapes import static_shape


@dataclass(frozen=True)
class Placed:
    """A logical tensor of `shape` held by `stored`, whose axes are the logical ones in `order`."""

    stored: relax.Expr
    order: Order
    shape: Shape

    @property
    def is_row_major(self) -> bool:
        return orders.same_storage(self.order, orders.identity(len(self.shape)), self.shape)

    def position(self, axis: int) -> int:
        """Return where the logical `axis` (negative counts from the end) lies in memory."""
        return self.order.index(axis % len(self.shape))


def row_major(expr: relax.Expr) -> Placed:
    """Return a tensor expression as it is."""
    shape = static_shape(expr)
    return Placed(expr, orders.identity(len(shape)), shape)


def move(builder: relax.BlockBuilder, tensor: Placed, order: Order) -> relax.Expr:
    """Return the tensor stored in `order`: as it is, reinterpreted where only size-1 axes differ, or transposed."""
    if tensor.order == order:
        return tensor.stored
    if not isinstance(tensor.stored, GenericConst) and orders.same_storage(tensor.order, order, tensor.shape):
        return reshaped(builder, tensor.stored, orders.stored_shape(order, tensor.shape))
    return transposed(builder, tensor.stored, [tensor.order.index(axis) for axis in order])
