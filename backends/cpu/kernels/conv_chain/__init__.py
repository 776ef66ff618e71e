"""Two convolutions of which the second reads what the first makes."""

from __future__ import annotations

from backends.cpu.kernels.conv_chain.emit import emit_conv_chain
from backends.cpu.kernels.conv_chain.emit_open import emit_open_chain
from backends.cpu.kernels.conv_chain.plan import chain_space, estimate
from backends.cpu.kernels.conv_chain.read import CONV_CHAIN, has_chain_form, read_conv_chain
from backends.cpu.kernels.template import Template

TEMPLATE = Template(
    name=CONV_CHAIN,
    read=read_conv_chain,
    space=chain_space,
    emit=emit_conv_chain,
    emit_open=emit_open_chain,
    claims=has_chain_form,
    estimate=estimate,
)
