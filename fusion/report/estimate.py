"""How long a kernel should take on a machine of the target's kind, without measuring anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from backends.backend import KernelCompiler
from backends.kernel import KernelInfo
from backends.machine_limits import MachineLimits, Stream
from fusion.model_graph import GraphCall
from fusion.runtime import Tensor
from fusion.tensors import tensor_bytes


def estimate_kernels(
    infos: Mapping[str, KernelInfo], calls: Sequence[GraphCall], weights: Sequence[Tensor], compiler: KernelCompiler
) -> dict[str, KernelInfo]:
    """Return `infos` with the estimate of each, the larger of the roofline's floor and what its template counted.

    Args:
        calls: Those of the model, which tell the weights that a kernel takes.
        weights: All of the model; those of a kernel lie where there is room for all.
    """
    taken = {call.op: call.weights for call in calls}
    limits = compiler.nominal_limits()
    size = sum(tensor_bytes(tuple(weight.shape), str(weight.dtype)) for weight in weights)

    def with_estimate(info: KernelInfo) -> KernelInfo:
        floor_us = _floor_us(info, taken.get(info.name, 0), size, limits)
        return replace(info, estimate_us=max(floor_us, compiler.estimate_us(info.cycles)))

    return {name: with_estimate(info) for name, info in infos.items()}


def _floor_us(info: KernelInfo, weights: int, model_weights: int, limits: MachineLimits) -> float:
    weights = min(weights, info.bytes)
    others = info.bytes - weights
    streams = Stream(weights, model_weights), Stream(others, weights + others)
    return limits.floor(info.flops, *streams).seconds * 1e6
