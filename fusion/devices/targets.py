"""Reads which devices a list of targets names: sets of this machine's CPUs, servers of TVM RPC, and CUDA devices."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

from backends.registry import device_runtime
from fusion.errors import TargetError
from fusion.system.cpus import cpu_numbers

_CORES = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")
_MEMORY = re.compile(r"(\d{1,12})([KMGT])", re.IGNORECASE)
_SECONDS = re.compile(r"\d{1,6}")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_OFFLOAD_HINT = "name a CUDA device by its number: cuda:0, and ?memory=8G behind it"
_HINT = (
    'name sets of CPUs, as taskset numbers them: target=["llvm:0-0", "llvm:1-1?memory=512M"], or all others: "llvm"; '
    'servers of TVM RPC: "rpc://host:9090/key"; GPUs: "cuda:0"'
)
_RPC_HINT = "name a server of TVM RPC: rpc://host:9090/key, and ?memory=512M or ?timeout=60 behind it"
_EXAMPLES = {
    "memory": "memory=512M (a whole number above 0 and one of K, M, G and T, powers of 1024 bytes)",
    "timeout": "timeout=60 (whole seconds, at least 1)",
}
_OFFLOADED = ("cuda",)
"""Kinds of devices that run kernels of their own, beside the CPU."""
_ORDINAL = re.compile(r"\d{1,3}")


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


@dataclass(frozen=True)
class RpcServer:
    """A device: a process that `python -m tvm.exec.rpc_server` runs, here or on another machine.

    Attributes:
        name: As the target named it.
        host, port, key: Of the server.
        memory: Bytes that the model may keep there; infinite where the target sets no limit.
        timeout: Seconds that one call of it may take; 0 where the target does not say.
    """

    name: str
    host: str
    port: int
    key: str
    memory: float = math.inf
    timeout: float = 0.0

    @property
    def cpus(self) -> tuple[int, ...]:
        """None of this machine, that is, of the thread that calls the server."""
        return ()

    @property
    def threads(self) -> int:
        """Threads of its kernels."""
        return 1


@dataclass(frozen=True)
class OffloadDevice:
    """A device: one beside the CPUs of this machine, with kernels of its own.

    Attributes:
        name: As the target named it.
        kind, ordinal: Of the target, and the driver's number of the device.
        memory: Bytes that the model may keep there; infinite where the target sets no limit.
    """

    name: str
    kind: str
    ordinal: int
    memory: float = math.inf

    @property
    def cpus(self) -> tuple[int, ...]:
        """None of this machine, that is, of the thread that calls the driver."""
        return ()

    @property
    def threads(self) -> int:
        """Threads of the host for it."""
        return 1


DeviceTarget = CoreSet | RpcServer | OffloadDevice


def parse_devices(targets: Sequence[str]) -> tuple[DeviceTarget, ...]:
    """Return the devices of `targets`, in their order.

    Raises:
        TargetError: There is none; a text names no device; a CPU or a server is named twice, or this process may not
            use a CPU.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise TargetError("this system binds no threads to CPUs", why="only Linux does", hint='use target="llvm"')
    if not targets:
        raise TargetError("a list of targets names at least one device", hint=_HINT)
    allowed, owner = cpu_numbers(), dict[int, str]()
    devices = _with_others(tuple(map(_parse, targets)), allowed)
    servers = [(device.host, device.port) for device in devices if isinstance(device, RpcServer)]
    beside = [(device.kind, device.ordinal) for device in devices if isinstance(device, OffloadDevice)]
    if len(set(beside)) < len(beside):
        raise TargetError("two devices are one", why="a CUDA device is named twice", hint="name each device once")
    if servers and beside:
        raise TargetError(
            "servers of TVM RPC and CUDA devices cannot share a model yet",
            why="code for servers is made of another lowering of it",
            hint="name devices of this machine, or servers and CPUs",
        )
    if len(set(servers)) < len(servers):
        raise TargetError("two devices are one server", why="it serves one at a time", hint="name each server once")
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


def target_of(devices: Sequence[DeviceTarget]) -> str:
    """Return the target that a model is lowered for which these devices run: that of those beside the CPU, if there are
    any, whose kernels CPUs can get loops for too.

    Raises:
        TargetError: There is no such device.
    """
    beside = [device for device in devices if isinstance(device, OffloadDevice)]
    if not beside:
        return "llvm"
    try:
        return device_runtime(beside[0].kind).target_of([device.ordinal for device in beside])
    except TargetError as error:
        named = f"the device {', '.join(device.name for device in beside)}"
        raise TargetError(error.what, where=named, why=error.why, hint=error.hint) from error


def _with_others(devices: tuple[DeviceTarget, ...], allowed: Sequence[int]) -> tuple[DeviceTarget, ...]:
    """Return the devices, "llvm" among them with all CPUs that this process may use and no other device names."""
    named = {cpu for device in devices for cpu in device.cpus}
    left = tuple(cpu for cpu in allowed if cpu not in named)
    open_sets = [device for device in devices if isinstance(device, CoreSet) and not device.cpus]
    if len(open_sets) > 1 or (open_sets and not left):
        raise TargetError(
            f"the device {open_sets[-1].name!r} has no CPUs",
            why='"llvm" are all that no other device names, and there are none left',
            hint=_HINT,
        )
    return tuple(replace(device, cpus=left) if device in open_sets else device for device in devices)


def _parse(target: str) -> DeviceTarget:
    if not isinstance(target, str):
        inputs = "; the example inputs of a torch module come with it: compile((module, inputs))"
        raise TargetError(f"a device is named by a string, not {type(target).__name__}", hint=_HINT + inputs)
    name = target.strip()
    kind, _, text = name.partition(":")
    if kind in _OFFLOADED:
        return _offload(name, kind, text)
    if kind == "rpc":
        return _server(name)
    kind, _, _ = kind.partition("?")
    if kind.endswith(".toml"):
        hint = "fusion plan MODEL --devices FILE plans for the devices of a file, and nothing runs there"
        raise TargetError(f"{target!r} is a file, and no device", hint=hint)
    if kind != "llvm":
        raise TargetError(f"unknown kind of device {target!r}", hint=_HINT)
    text, _, asked = name.removeprefix("llvm").partition("?")
    limits = _limits(name, asked, ("memory",)) if "?" in name else {}
    if not text:
        return CoreSet(name, (), **limits)
    text = text.removeprefix(":")
    found = _CORES.fullmatch(text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, -1)
    if last < first:
        raise TargetError(f"cannot read the CPUs of the device {target!r}", hint=_HINT)
    return CoreSet(name, tuple(range(first, last + 1)), **limits)


def _offload(name: str, kind: str, text: str) -> OffloadDevice:
    number, _, asked = text.partition("?")
    if not _ORDINAL.fullmatch(number):
        raise TargetError(f"cannot read the device {name!r}", hint=_OFFLOAD_HINT)
    return OffloadDevice(name, kind, int(number), **_limits(name, asked, ("memory",)) if "?" in name else {})


def _server(name: str) -> RpcServer:
    try:
        parts = urlsplit(name)
        host, port, key = parts.hostname, parts.port, parts.path.removeprefix("/")
    except ValueError as error:  # of a port that is none, or half an IPv6 address
        raise TargetError(f"cannot read the device {name!r}", why=str(error), hint=_RPC_HINT) from error
    if not host or not port or not key or parts.username is not None or parts.fragment or any(map(str.isspace, key)):
        raise TargetError(f"cannot read the device {name!r}", hint=_RPC_HINT)
    return RpcServer(name, host, port, key, **_limits(name, parts.query, ("memory", "timeout")) if "?" in name else {})


def _limits(name: str, text: str, known: Sequence[str]) -> dict[str, float]:
    found = dict[str, float]()
    for part in text.split("&"):
        kind, _, value = part.partition("=")
        limit = _limit(kind, value)
        if kind not in known:
            why = f"{kind!r} is no limit that it has" if kind else "it names none"
        elif kind in found:
            why = f"{kind} is given twice"
        elif limit is None:
            why = f"{kind} is {value!r}"
        else:
            found[kind] = limit
            continue
        hint = f"write {' or '.join(_EXAMPLES[each] for each in known)}"
        raise TargetError(f"cannot read the limit of the device {name!r}", why=why, hint=hint)
    return found


def _limit(kind: str, value: str) -> float | None:
    """Return a limit in bytes or seconds; None if `value` is none."""
    if kind == "memory" and (memory := _MEMORY.fullmatch(value)):
        return float(int(memory[1]) * _UNITS[memory[2].upper()]) or None
    if kind == "timeout" and _SECONDS.fullmatch(value):
        return float(value) or None
    return None


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:32])) + (", ..." if len(numbers) > 32 else "")
