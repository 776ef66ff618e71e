"""Random weights under which a network behaves like a trained one: activations keep unit scale in all layers."""

from __future__ import annotations

import math

import torch
from torch import nn

_CALIBRATION_PASSES = 3
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d)
_NORMS = (*_BATCH_NORMS, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm2d)


def initialize(model: nn.Module) -> None:
    """Give each layer weights that preserve scale: He for convolutions, 1/sqrt(fan in) for linear layers.

    The libraries' own start values (standard deviation 0.02) leave attention uniform and residual branches at almost
    zero, which would hide errors made in them.
    """
    with torch.no_grad():
        for layer in model.modules():
            _initialize_layer(layer)


def _initialize_layer(layer: nn.Module) -> None:
    if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
        nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    elif isinstance(layer, nn.ConvTranspose2d):
        # Of a window's elements, one in as many as a stride skips meets an input.
        inputs, _, height, width = layer.weight.shape
        met = inputs * height * width / math.prod(layer.stride)
        nn.init.normal_(layer.weight, std=math.sqrt(2 / met))
    elif isinstance(layer, nn.Linear):
        nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
    elif isinstance(layer, nn.Embedding):
        nn.init.normal_(layer.weight)
    elif type(layer).__name__ == "NoNorm":
        # MobileBERT's, after a sum of two; with the published 1 each layer would be larger than the one before.
        nn.init.uniform_(layer.weight, 0.6, 0.8)
    elif isinstance(layer, _NORMS):
        nn.init.uniform_(layer.weight, 0.8, 1.2)
    bias = getattr(layer, "bias", None)
    if isinstance(bias, nn.Parameter):
        nn.init.normal_(bias, std=0.1)


def calibrate(model: nn.Module, shape: tuple[int, ...]) -> None:
    """Give every BatchNorm the statistics of a few random batches of `shape`, by forward passes in training mode."""
    norms = [layer for layer in model.modules() if isinstance(layer, _BATCH_NORMS)]
    if not norms:
        return
    for layer in norms:
        layer.reset_running_stats()
        layer.momentum = None  # the plain average over the passes
    model.train()
    with torch.no_grad():
        for _ in range(_CALIBRATION_PASSES):
            model(torch.randn(shape))
    model.eval()
