"""The CUDA devices that a target names, or the one that is there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import tvm

from backends.cuda.devices import DEVICES, CudaDevice
from backends.cuda.runtime.architectures import capability_of
from backends.cuda.runtime.found_devices import OLDEST, FoundDevice, find_devices, too_old
from fusion.errors import TargetError

_READ = ("kind", "arch")
_OF_TVM = frozenset(
    ("tag", "keys", "host", "max_num_threads", "max_threads_per_block", "max_shared_memory_per_block",
     "registers_per_block", "thread_warp_size", "l2_cache_size_bytes")
)  # fmt: skip
"""What TVM's own targets of CUDA devices have besides, for which there are the figures of `DEVICES`."""

_UNITS = {(8, 6): 128, (8, 7): 128, (8, 9): 128}
"""Float32 units of an SM, where capabilities differ from the figures before them: CUDA C++ programming guide,
"Arithmetic instructions"."""


@dataclass(frozen=True)
class CudaTarget:
    """What code is made for.

    Attributes:
        target: Of the first of `archs`.
        archs: The architectures that there is machine code for, ascending.
        device: The figures of the first, by which kernels are chosen.
    """

    target: tvm.target.Target
    archs: tuple[str, ...]
    device: CudaDevice


def resolve_target(fields: Mapping[str, object]) -> CudaTarget:
    """Return what these fields of a target name: architectures, "-arch=sm_80,sm_90", or else the first device here.

    Raises:
        TargetError: An architecture has no figures, or none is named and there is no device, or one that is too old; or
            there is a field that nothing reads.
    """
    _require_known(fields)
    named = [each for each in str(fields.get("arch") or "").split(",") if each]
    if named:
        known = {arch: _known(arch) for arch in named}
        archs = sorted(known, key=capability_of)
        device = known[archs[0]]
    else:
        device = figures_of(_found())
        archs = [device.arch]
    return CudaTarget(tvm.target.Target({"kind": "cuda", "arch": device.arch}), tuple(archs), device)


def _require_known(fields: Mapping[str, object]) -> None:
    """Raise where a field has no meaning here: one that is written as an option, which are strings, or of another kind
    of target."""
    known = (*_READ, "tag")
    written = {name for name, value in fields.items() if isinstance(value, str)}
    others = [name for name in fields if name not in known and (name not in _OF_TVM or name in written)]
    if others:
        raise TargetError(
            f"a target of CUDA devices has no option {others[0]!r}",
            hint=f'write "cuda -arch=NAME", of {", ".join(DEVICES)}, or several of these',
        )


def _known(arch: str) -> CudaDevice:
    if arch in DEVICES:
        return DEVICES[arch]
    here = [device for device in _devices() if device.arch == arch and device.capability >= OLDEST]
    if here:
        return figures_of(here[0])
    raise TargetError(
        f"there are no figures of CUDA devices of architecture {arch!r}",
        why="kernels are chosen by them",
        hint=f'write "cuda -arch=NAME", of {", ".join(DEVICES)}, or several of these{_stand_in(arch)}',
    )


def _stand_in(arch: str) -> str:
    """Return what is to be said of an architecture without figures: whose code it runs, or that it is too old; "" of
    what is none."""
    name = re.fullmatch(r"(sm_\d+)[af]?", arch)
    if not name:
        return ""
    if capability_of(name[1]) < OLDEST:
        return f"; kernels are written for sm_{OLDEST[0]}{OLDEST[1]} and later"
    before = [known for known in DEVICES if capability_of(known) <= capability_of(name[1])]
    return f"; {arch} runs code for {max(before, key=capability_of)}"


def _devices() -> tuple[FoundDevice, ...]:
    try:
        return find_devices()
    except TargetError:
        return ()


def _found() -> FoundDevice:
    try:
        device = find_devices()[0]
    except TargetError as error:
        raise TargetError(
            'the target "cuda" is the device that is there, and there is none',
            why=f"{error.what}: {error.why}",
            hint=f'write "cuda -arch=NAME", of {", ".join(DEVICES)}, to compile for another machine; {error.hint}',
        ) from error
    if device.capability < OLDEST:
        raise too_old([device])
    return device


def figures_of(found: FoundDevice) -> CudaDevice:
    """Return the figures of a device that is there: those of the data sheet where it is that of the table, otherwise
    what the driver says of it, and of the rest those of the table before it, by its clock and number of SMs."""
    known = [each for each in DEVICES.values() if capability_of(each.arch) <= found.capability]
    base = max(known, key=lambda each: capability_of(each.arch))
    if base.arch == found.arch and base.sms == found.sms:
        return base
    units = _UNITS.get(found.capability, base.float32_units)
    clock = found.clock_khz * 1e3 or base.clock_hz
    faster = found.sms * clock / (base.sms * base.clock_hz)
    return replace(
        base,
        name=found.name,
        arch=found.arch,
        sms=found.sms,
        threads=found.threads,
        blocks=found.blocks,
        l2_bytes=found.l2_bytes,
        shared_bytes=found.shared_bytes,
        block_shared_bytes=found.block_shared_bytes,
        memory_bytes=found.memory,
        gbs=2 * found.memory_khz * found.bus_bits / 8 / 1e6 or base.gbs,
        float32_units=units,
        float32_gflops=2 * units * found.sms * clock / 1e9,
        float16_gflops=base.float16_gflops * faster,
        tfloat32_gflops=base.tfloat32_gflops * faster,
        source=f"the driver of this machine; tensor cores, and L2 a cycle, as of {base.name}",
    )
