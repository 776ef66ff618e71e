"""A depthwise convolution or a pool with the convolutions before and behind it."""

from __future__ import annotations

from backends.cpu.kernels.rolling_window.emit import emit_rolling_window
from backends.cpu.kernels.rolling_window.emit_open import emit_open_rolling
from backends.cpu.kernels.rolling_window.lower import is_channels_last_pool, lower_channels_last_pool
from backends.cpu.kernels.rolling_window.plan import estimate, rolling_space, why_not_fused
from backends.cpu.kernels.rolling_window.read import ROLLING_WINDOW, has_rolling_form, read_rolling_window
from backends.cpu.kernels.template import Lower, Template

TEMPLATE = Template(
    name=ROLLING_WINDOW,
    read=read_rolling_window,
    space=lambda stages, machine, threads: rolling_space(stages.sizes, machine, threads),
    emit=emit_rolling_window,
    emit_open=emit_open_rolling,
    claims=has_rolling_form,
    lowerings={"relax.nn.max_pool2d": Lower(lower_channels_last_pool, is_channels_last_pool)},
    estimate=estimate,
    why_not_fused=why_not_fused,
)
