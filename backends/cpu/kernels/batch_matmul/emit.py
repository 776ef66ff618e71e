"""The loops of a product of batches: see `contraction`."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.batch_matmul.plan import product_of
from backends.cpu.kernels.shared.contraction import Blocking, emit
from backends.cpu.kernels.shared.packed_blocking import PackedBlocking
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from partition.access import BATCH_MATMUL


def emit_batch_matmul(
    func: tirx.PrimFunc, roles: Roles, machine: Machine, point: Blocking | PackedBlocking
) -> Scheduled:
    """Return the micro-kernel form of `func`."""
    nest, blocking = Nest(), point.blocking if isinstance(point, PackedBlocking) else point
    emit(nest, [product_of(roles, machine)], blocking, packs=blocking is not point)
    return Scheduled(func.with_body(nest.finish()), BATCH_MATMUL, str(point))
