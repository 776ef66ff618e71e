"""How long a kernel should take on a machine of the target's kind, without measuring anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from backends.cpu.anchors.blocking import BYTES_PER_CYCLE, L2_BYTES_PER_CYCLE
from backends.kernel import KernelInfo
from fusion.context import Machine
from fusion.model_graph import Call
from fusion.report.machine_limits import Level, MachineLimits, Stream
from fusion.runtime import Tensor
from fusion.tensors import tensor_bytes

CLOCK_GHZ = 3.0
"""Of a server core with all cores busy: Intel's Sapphire Rapids and AMD's Genoa have 2.7 to 3.7 (their data sheets)."""


def nominal_limits(machine: Machine, threads: int) -> MachineLimits:
    """Return the limits of `threads` cores, each with two vector units, at `CLOCK_GHZ`."""
    cycles = threads * CLOCK_GHZ
    vector_bytes = 4.0 * machine.vector_lanes
    caches = [
        Level("L1", machine.l1_bytes * threads, 2 * vector_bytes * cycles),
        Level("L2", machine.l2_bytes * threads, L2_BYTES_PER_CYCLE * cycles),
        Level("L3", machine.l3_bytes, BYTES_PER_CYCLE * cycles),
    ]
    known = tuple(level for level in caches if level.bytes)
    return MachineLimits(
        threads, 2 * 2 * machine.vector_lanes * cycles, (*known, Level("memory", 0, BYTES_PER_CYCLE * cycles))
    )


def estimate_kernels(
    infos: Mapping[str, KernelInfo], calls: Sequence[Call], weights: Sequence[Tensor], limits: MachineLimits
) -> dict[str, KernelInfo]:
    """Return `infos` with the estimate of each, the larger of the roofline's floor and what its template counted.

    Args:
        calls: Those of the model, which tell the weights that a kernel takes.
        weights: All of the model; those of a kernel lie where there is room for all.
    """
    taken = {call.op: call.weights for call in calls}
    size = sum(tensor_bytes(tuple(weight.shape), str(weight.dtype)) for weight in weights)
    return {name: _with_estimate(info, taken.get(name, 0), size, limits) for name, info in infos.items()}


def _with_estimate(info: KernelInfo, weights: int, model_weights: int, limits: MachineLimits) -> KernelInfo:
    weights = min(weights, info.bytes)
    others = info.bytes - weights
    floor = limits.floor(info.flops, Stream(weights, model_weights), Stream(others, weights + others))
    return replace(info, estimate_us=max(floor.seconds * 1e6, info.cycles / (CLOCK_GHZ * 1e3)))
