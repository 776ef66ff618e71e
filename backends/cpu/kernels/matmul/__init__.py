"""Rows times constant matrices: one matmul, or several that share their left operand, and what makes that."""

from __future__ import annotations

from backends.cpu.kernels.matmul.emit import emit_products
from backends.cpu.kernels.matmul.emit_open import emit_open_products
from backends.cpu.kernels.matmul.lower import has_weights, lower_matmul
from backends.cpu.kernels.matmul.plan import estimate, products_space
from backends.cpu.kernels.matmul.read import read_row_products
from backends.cpu.kernels.template import Lower, Template
from partition.access import MATMUL

TEMPLATE = Template(
    name=MATMUL,
    read=read_row_products,
    space=products_space,
    emit=emit_products,
    claims=lambda marks: set(marks.anchors) == {MATMUL},
    lowerings={"relax.matmul": Lower(lower_matmul, has_weights)},
    estimate=estimate,
    emit_open=emit_open_products,
)
