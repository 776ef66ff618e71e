"""Products of batches of two activations."""

from __future__ import annotations

from backends.cpu.kernels.batch_matmul.emit import emit_batch_matmul
from backends.cpu.kernels.batch_matmul.emit_open import emit_open_batch_matmul
from backends.cpu.kernels.batch_matmul.lower import lower_batch_matmul
from backends.cpu.kernels.batch_matmul.plan import batch_matmul_space
from backends.cpu.kernels.template import Lower, Template
from backends.tensorir.roles import read_roles
from partition.access import BATCH_MATMUL

TEMPLATE = Template(
    name=BATCH_MATMUL,
    read=read_roles,
    space=batch_matmul_space,
    emit=emit_batch_matmul,
    claims=lambda marks: marks.is_one(BATCH_MATMUL),
    lowerings={"relax.matmul": Lower(lower_batch_matmul)},
    emit_open=emit_open_batch_matmul,
)
