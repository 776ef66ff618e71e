"""The CUDA device that a target names."""

from __future__ import annotations

from collections.abc import Mapping

import tvm

from backends.cuda.devices import DEVICES, CudaDevice
from fusion.errors import TargetError


def resolve_target(fields: Mapping[str, object]) -> tuple[tvm.target.Target, CudaDevice]:
    """Return the target of these fields and what is known of its device.

    Raises:
        TargetError: It names no architecture, or one that there are no figures of.
    """
    arch, known = str(fields.get("arch") or ""), ", ".join(DEVICES)
    if not arch:
        raise TargetError(
            'the target "cuda" names no architecture',
            why="kernels are chosen for one, and this version asks no driver which device is there",
            hint=f'write "cuda -arch=NAME", of {known}',
        )
    if arch not in DEVICES:
        raise TargetError(
            f"there are no figures of CUDA devices of architecture {arch!r}",
            why="kernels are chosen by them",
            hint=f'write "cuda -arch=NAME", of {known}',
        )
    return tvm.target.Target({"kind": "cuda", "arch": arch}), DEVICES[arch]
