"""Asks cuDNN itself for plans of convolutions on a device that is described as text: none is there, nor a handle."""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Sequence
from ctypes import c_char
from typing import Any, cast

from backends.cuda.devices import DEVICES, REGISTERS, RESERVED_SHARED, STATIC_SHARED, CudaDevice
from backends.cuda.libraries.cudnn import api
from backends.cuda.libraries.cudnn.api import API, RANKED, CuDnn, Descriptors
from backends.cuda.libraries.cudnn.convolution import read_convolution
from backends.cuda.libraries.cudnn.graph import write_graph
from backends.cuda.libraries.cudnn.loaded import choose_plan
from backends.cuda.libraries.functions import LibraryFunctions

_DESCRIPTOR = api.ATTRIBUTES["OPERATIONGRAPH_OPS"][1]
api.ATTRIBUTES |= {
    "DEVICEPROP_JSON_REPRESENTATION": (2702, api.AttributeType(24, c_char)),
    "ENGINEHEUR_DEVICEPROP": (204, _DESCRIPTOR), "EXECUTION_PLAN_DEVICEPROP": (407, _DESCRIPTOR),
}  # fmt: skip
api.KINDS |= {"DEVICEPROP": 38}


def described(device: CudaDevice) -> dict[str, object]:
    """Return what 9.28.1 wants to know of a device."""
    return {
        "deviceName": device.name, "deviceVer": int(device.arch.removeprefix("sm_")) * 10, "driverVer": 13000,
        "multiProcessorCount": device.sms, "warpSize": 32, "regsPerBlock": REGISTERS, "maxRegistersPerSM": REGISTERS,
        "maxSharedMemoryPerBlock": STATIC_SHARED, "maxSharedMemoryPerBlockOptin": device.block_shared_bytes,
        "reservedSharedMemoryPerBlock": RESERVED_SHARED, "maxCtasPerSM": device.blocks, "maxThreadsPerBlock": 1024,
        "maxThreadsPerSM": device.threads, "maxBlockSize": [1024, 1024, 64], "maxGridSize": [2**31 - 1, 65535, 65535],
        "totalGlobalMem": device.memory_bytes, "l2CacheSize": device.l2_bytes, "memoryBusWidth": 5120,
        "smClockRateKHz": int(device.clock_hz / 1e3), "memClockRateKHz": int(device.gbs * 1e6 * 8 / 5120 / 2),
        "cudaDeviceId": 0, "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1,
    }  # fmt: skip


class _OfDevice(Descriptors):
    """Descriptors for a device that is described, in the place of a handle's."""

    def __init__(self, library: LibraryFunctions, device: CudaDevice) -> None:
        super().__init__(library)
        text = json.dumps(described(device)).encode() + b"\0"
        self._properties = super().make("DEVICEPROP", DEVICEPROP_JSON_REPRESENTATION=text)

    def _begin(self, kind: str, attributes: dict[str, Sequence[Any]]) -> int:
        kept = {name: values for name, values in attributes.items() if not name.endswith("_HANDLE")}
        if attributes and kind in ("ENGINEHEUR", "EXECUTION_PLAN"):
            kept[f"{kind}_DEVICEPROP"] = [self._properties]
        return super()._begin(kind, kept)


def _notes(descriptors: Descriptors, plan: int) -> list[int]:
    (chosen,) = descriptors.get(plan, "EXECUTION_PLAN_ENGINE_CONFIG", 1, "ENGINECFG")
    (engine,) = descriptors.get(chosen, "ENGINECFG_ENGINE", 1, "ENGINE")
    return descriptors.get(engine, "ENGINE_NUMERICAL_NOTE", 16)


def main() -> None:
    """Print for each convolution of the standard input the notes of its engine, of those that are ranked."""
    asked = json.load(sys.stdin)
    library = cast(CuDnn, LibraryFunctions(API, ctypes.CDLL(asked["library"])))
    library.handle = 0
    answers = []
    for fields in asked["convolutions"]:
        descriptors = _OfDevice(library, DEVICES[asked["arch"]])
        graph = write_graph(library, descriptors, read_convolution(fields))
        found = choose_plan(library, descriptors, graph, (RANKED,))
        answers.append(None if found is None else _notes(descriptors, found[0]))
    print(json.dumps(answers))


if __name__ == "__main__":
    main()
