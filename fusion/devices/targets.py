"""Reads which devices a list of targets names: sets of this machine's CPUs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass

from fusion.cpus import cpu_numbers
from fusion.errors import TargetError

_CORES = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MEMORY = re.compile(r"memory=(\d{1,12})([KMGT])", re.IGNORECASE)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_HINT = 'name sets of CPUs, as taskset numbers them: target=["llvm:0-0", "llvm:1-1?memory=512M"]'
_TO_COME = {
    "rpc": "devices of other machines are not available yet",
    "cuda": "devices of the kind cuda are not available yet: fusion writes kernels for CPUs only",
}


@dataclass(frozen=True)
class CoreSet:
    """A device: some CPUs of this machine.

    Attributes:
        name: As the target named it.
        cpus: The system's numbers of them, ascending.
        memory: Bytes that the model may keep there; infinite where the target sets no limit.
    """

    name: str
    cpus: tuple[int, ...]
    memory: float = math.inf

    @property
    def threads(self) -> int:
        """Threads of its kernels."""
        return len(self.cpus)


def parse_devices(targets: Sequence[str]) -> tuple[CoreSet, ...]:
    """Return the devices of `targets`, in their order.

    Raises:
        TargetError: There is none; a text names no set of CPUs; a CPU is named twice, or this process may not use it.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise TargetError("this system binds no threads to CPUs", why="only Linux does", hint='use target="llvm"')
    if not targets:
        raise TargetError("a list of targets names at least one device", hint=_HINT)
    devices = tuple(map(_parse, targets))
    allowed, owner = cpu_numbers(), dict[int, str]()
    for device in devices:
        for cpu in device.cpus:
            if cpu in owner:
                raise TargetError(f"CPU {cpu} is part of two devices, {owner[cpu]!r} and {device.name!r}", hint=_HINT)
            owner[cpu] = device.name
        absent = sorted(set(device.cpus) - set(allowed))
        if absent:
            raise TargetError(
                f"the device {device.name!r} has CPUs that this process may not use: {_listed(absent)}",
                why=f"it may use {_listed(allowed)}",
                hint="name some of these, or give the process more (taskset, docker run --cpuset-cpus)",
            )
    return devices


def _parse(target: str) -> CoreSet:
    if not isinstance(target, str):
        raise TargetError(f"a device is named by a string, not {type(target).__name__}", hint=_HINT)
    kind, _, text = target.strip().partition(":")
    if kind in _TO_COME:
        raise TargetError(f"cannot use the device {target!r}: {_TO_COME[kind]}", hint=_HINT)
    if kind != "llvm":
        raise TargetError(f"unknown kind of device {target!r}", hint=_HINT)
    text, asks, limit = text.partition("?")
    memory = _memory(target, limit) if asks else math.inf
    found = _CORES.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
    if last < first:
        raise TargetError(f"cannot read the CPUs of the device {target!r}", hint=_HINT)
    return CoreSet(target.strip(), tuple(range(first, last + 1)), memory)


def _memory(target: str, text: str) -> float:
    found = _MEMORY.fullmatch(text)
    if not found or not int(found[1]):
        raise TargetError(
            f"cannot read the limit of the device {target!r}",
            why=f"it says {text!r}",
            hint="write ?memory=512M: a number and one of K, M, G and T, powers of 1024 bytes",
        )
    return float(int(found[1]) * _UNITS[found[2].upper()])


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:32])) + (", ..." if len(numbers) > 32 else "")
