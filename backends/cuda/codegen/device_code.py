"""The code of a model for CUDA devices as one file: a zip of the kernels, and what a run starts of them.

    launches.json           by PrimFunc, what is started one after another, what is counted of each, workspaces
    matmul.0.cu             CUDA C of its first kernel
    matmul.0.sm_80.cubin    what NVRTC makes of it for each architecture asked for
    matmul.0.ptx            and for later ones

`backends/cuda/runtime/code_file.py` reads it where there is no compiler.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.count_traffic import count_traffic
from backends.cuda.codegen.generate import CudaKernel, generate_kernel
from backends.cuda.codegen.launches import launches_of
from backends.cuda.codegen.nvrtc import Assembled, assemble
from backends.cuda.codegen.without_spills import Taken, without_spills
from backends.cuda.codegen.writes import written_by
from backends.cuda.libraries.call import DeviceLibraryCall
from backends.cuda.libraries.mark import call_of
from backends.cuda.runtime.cubin import read_resources
from backends.cuda.traffic import LaunchTraffic
from backends.tensorir.stages import dtype_of, shape_of
from fusion.system.abandon import checkpoint
from fusion.tensors import tensor_bytes

_Fields = dict[str, Any]
_LAUNCHES = "launches.json"
_TIME = (1980, 1, 1, 0, 0, 0)
"""Of all members, so that equal models are equal files."""


@dataclass(frozen=True)
class Launch:
    """One kernel that a PrimFunc starts.

    Attributes:
        name: Of its members.
        kernel: Its text, and how it is started.
        arguments: Of each of its pointers, which parameter of the PrimFunc it is, from 0 on, or behind these which
            workspace.
        writes: Those of these that it may write; the others are only read.
    """

    name: str
    kernel: CudaKernel
    arguments: tuple[int, ...]
    writes: tuple[int, ...]
    traffic: LaunchTraffic


@dataclass(frozen=True)
class DeviceKernels:
    """What one PrimFunc starts.

    Attributes:
        parameters: How many it has.
        workspaces: Bytes of each buffer that a kernel hands to a later one.
        launches: In order.
        call: Of a library, in place of launches.
    """

    parameters: int
    workspaces: tuple[int, ...]
    launches: tuple[Launch, ...]
    call: DeviceLibraryCall | None = None


def generate_kernels(name: str, func: tirx.PrimFunc, arch: str) -> DeviceKernels:
    """Return the CUDA C of a PrimFunc with loops, or the call of a library that computes it."""
    call = call_of(func)
    if call is not None:
        return DeviceKernels(len(func.params), (), (), call)
    found = launches_of(func)
    launches = []
    for number, each in enumerate(found.functions):
        kernel = generate_kernel(each, name, arch)
        names = [str(param.name) for param in each.params]
        arguments = tuple(map(names.index, kernel.parameters))
        written = written_by(each)
        writes = tuple(at for at in arguments if each.params[at] in written)
        launches.append(Launch(f"{name}.{number}", kernel, arguments, writes, count_traffic(each)))
    return DeviceKernels(len(func.params), tuple(map(_bytes_of, found.workspaces)), tuple(launches))


def write_code(functions: Mapping[str, tirx.PrimFunc], archs: Sequence[str]) -> bytes:
    """Return the file of PrimFuncs with loops, whose CUDA C is for the first of `archs` and what comes after it.

    Raises:
        NotInstalledError: There is no NVRTC.
    """
    check, file = checkpoint(), io.BytesIO()
    kernels = {}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as members:
        for name, func in functions.items():
            check()
            generated = generate_kernels(name, func, archs[0])
            assembled = [_assemble(launch, archs) for launch in generated.launches]
            kernels[name] = replace(generated, launches=tuple(launch for launch, _ in assembled))
            for launch, made in assembled:
                data = {"cu": launch.kernel.source.encode(), "ptx": made[archs[-1]].ptx}
                data |= {f"{arch}.cubin": code.cubin for arch, code in made.items()}
                for suffix, member in data.items():
                    members.writestr(zipfile.ZipInfo(f"{launch.name}.{suffix}", _TIME), member)
        described = {name: _described(each) for name, each in kernels.items()}
        for each in _launches(described):
            del each["kernel"]["source"]
        held = json.dumps({"archs": archs, "kernels": described}, indent=1)
        members.writestr(zipfile.ZipInfo(_LAUNCHES, _TIME), held)
    return file.getvalue()


def _assemble(launch: Launch, archs: Sequence[str]) -> tuple[Launch, dict[str, Assembled]]:
    """Return a launch with its kernel as it is to spill least, and its code for each of `archs`."""
    made: dict[tuple[str, str], Assembled] = {}

    def taken(kernel: CudaKernel, arch: str) -> Taken:
        code = made[kernel.source, arch] = assemble(kernel.source, arch, launch.name)
        found = read_resources(code.cubin, kernel.symbol)
        return (found.registers, found.local_bytes) if found else (0, 0)

    kernel = without_spills(launch.kernel, archs, taken)
    return replace(launch, kernel=kernel), {arch: made[kernel.source, arch] for arch in archs}


def _described(kernels: DeviceKernels) -> _Fields:
    return asdict(kernels) | {"call": None if kernels.call is None else kernels.call.fields()}


def _launches(described: Mapping[str, _Fields]) -> Iterator[_Fields]:
    for each in described.values():
        yield from each["launches"]


def _bytes_of(buffer: Var) -> int:
    return tensor_bytes(shape_of(buffer), dtype_of(buffer))
