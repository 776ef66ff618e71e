"""Reads the texts of kernels, which the emulator runs, from the file of a model's code."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

from backends.cuda.codegen.device_code import DeviceKernels, Launch
from backends.cuda.codegen.generate import CudaKernel
from backends.cuda.libraries.call import read_call
from backends.cuda.traffic import LaunchTraffic


def read_code(data: bytes) -> dict[str, DeviceKernels]:
    """Return what `write_code` wrote, without cubins and PTX, by PrimFunc."""
    with zipfile.ZipFile(io.BytesIO(data)) as members:
        described = json.loads(members.read("launches.json"))["kernels"]
        return {name: _kernels_of(each, members) for name, each in described.items()}


def _kernels_of(fields: Mapping[str, Any], members: zipfile.ZipFile) -> DeviceKernels:
    launches = tuple(_launch(each, members.read(f"{each['name']}.cu").decode()) for each in fields["launches"])
    call = None if fields["call"] is None else read_call(fields["call"])
    return DeviceKernels(fields["parameters"], tuple(fields["workspaces"]), launches, call)


def _launch(fields: Mapping[str, Any], source: str) -> Launch:
    kernel = CudaKernel(**{**fields["kernel"], "source": source, "parameters": tuple(fields["kernel"]["parameters"])})
    traffic = LaunchTraffic(**fields["traffic"])
    return Launch(fields["name"], kernel, tuple(fields["arguments"]), tuple(fields["writes"]), traffic)
