"""Reads the file of `backends/cuda/codegen/device_code.py` where there is no compiler."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.cuda.libraries.call import DeviceLibraryCall, read_call
from backends.cuda.runtime.architectures import fitting_arch, runs_on
from backends.cuda.runtime.found_devices import FoundDevice
from backends.cuda.traffic import LaunchTraffic
from fusion.errors import TargetError


@dataclass(frozen=True)
class CodeLaunch:
    """A kernel as it is started.

    Attributes:
        name: Of its members.
        symbol: Of its function.
        blocks, threads: Of the grid and of a block, which have one dimension.
        shared_bytes: Of the shared memory that the launch asks for.
        arguments: Of each of its pointers, which parameter of the PrimFunc it is, or behind these which workspace.
        writes: Those of these that it may write: in files from before that was told, all.
        traffic: What was counted of it; None in files from before that was.
    """

    name: str
    symbol: str
    blocks: int
    threads: int
    shared_bytes: int
    arguments: tuple[int, ...]
    writes: tuple[int, ...]
    traffic: LaunchTraffic | None


@dataclass(frozen=True)
class CodeFunction:
    """What a PrimFunc starts.

    Attributes:
        parameters: How many it has.
        workspaces: Bytes of each buffer that a kernel hands to a later one.
        call: What of a library it is in place of launches; None where it has these.
    """

    parameters: int
    workspaces: tuple[int, ...]
    launches: tuple[CodeLaunch, ...]
    call: DeviceLibraryCall | None


class CodeFile:
    """The code of a model.

    Attributes:
        archs: Those it has machine code for; PTX is for devices later than the last.
        functions: By PrimFunc.
    """

    def __init__(self, data: bytes) -> None:
        """Read the file.

        Raises:
            ValueError: It is damaged.
        """
        try:
            self._members = zipfile.ZipFile(io.BytesIO(data))
            described = json.loads(self._members.read("launches.json"))
            self.archs = tuple(map(str, described["archs"]))
            self.functions = {str(name): _function(each) for name, each in described["kernels"].items()}
        except (zipfile.BadZipFile, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the code of its kernels cannot be read: {error!r}") from error

    def cubin(self, name: str, arch: str) -> bytes:
        """Return machine code of a kernel for one of `archs`.

        Raises:
            ValueError: The file is damaged.
        """
        return self._read(name, f"{name}.{arch}.cubin")

    def code(self, name: str, device: FoundDevice) -> bytes:
        """Return machine code of a kernel for a device, or its PTX where the device is later than all of that.

        Raises:
            TargetError: There is none.
            ValueError: The file is damaged.
        """
        fitting = fitting_arch(self.archs, device.capability)
        if not fitting and not runs_on(self.archs[-1], device.capability, is_ptx=True):
            raise TargetError(
                f"the module has code for {' and '.join(self.archs)}, and {device.label} is {device.arch}",
                hint=f'compile the model again with target="cuda -arch={device.arch}"',
            )
        return self._read(name, f"{name}.{fitting}.cubin" if fitting else f"{name}.ptx") + b"\0"

    def _read(self, name: str, member: str) -> bytes:
        try:
            return self._members.read(member)
        except (zipfile.BadZipFile, KeyError) as error:
            raise ValueError(f"the code of the kernel {name!r} cannot be read: {error!r}") from error


def _function(fields: Mapping[str, Any]) -> CodeFunction:
    made = CodeFunction(
        int(fields["parameters"]),
        tuple(map(int, fields["workspaces"])),
        tuple(map(_launch, fields["launches"])),
        read_call(fields["call"]) if fields.get("call") else None,
    )
    known = made.parameters + len(made.workspaces)
    if made.call is not None and any(not 0 <= argument < known for argument in made.call.arguments):
        raise ValueError(f"the call {made.call.work} has other tensors than the file says")
    for launch in made.launches:
        is_known = all(0 <= argument < known for argument in launch.arguments)
        if not is_known or not set(launch.writes) <= set(launch.arguments) or launch.blocks < 1 or launch.threads < 1:
            raise ValueError(f"the kernel {launch.name!r} cannot be started as the file says")
    return made


def _launch(fields: Mapping[str, Any]) -> CodeLaunch:
    kernel = fields["kernel"]
    return CodeLaunch(
        name=str(fields["name"]),
        symbol=str(kernel["symbol"]),
        blocks=int(kernel["blocks"]),
        threads=int(kernel["threads"]),
        shared_bytes=int(kernel["shared_bytes"]),
        arguments=tuple(map(int, fields["arguments"])),
        writes=tuple(map(int, fields.get("writes", fields["arguments"]))),
        traffic=_traffic(fields["traffic"]) if "traffic" in fields else None,
    )


def _traffic(fields: Mapping[str, Any]) -> LaunchTraffic:
    return LaunchTraffic(int(fields["thread_bytes"]), int(fields["l2_bytes"]), str(fields["multiplies"]))
