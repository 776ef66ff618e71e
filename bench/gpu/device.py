"""The device that is measured, and what says that there is none."""

from __future__ import annotations

from backends.registry import device_runtime
from fusion.errors import NotInstalledError, TargetError

_TORCH = "pip install torch, of a build for CUDA (pytorch.org), into this environment"


def require_device() -> str:
    """Return what the first device is, in words.

    Raises:
        TargetError: There is no driver or no device, or torch's build finds none.
        NotInstalledError: torch is not installed, or is a build for CPUs.
    """
    described = device_runtime("cuda").describe()
    if "cuda:0" not in described:
        raise TargetError(
            "the bench of CUDA modules measures on a device, and none is here",
            why=described.get("cuda", ""),
            hint="run it where nvidia-smi lists one; without, `python -m bench.device_zoo` says what has kernels",
        )
    try:
        import torch
    except ModuleNotFoundError as error:
        raise NotInstalledError("the bench of CUDA modules compares with torch", hint=_TORCH) from error
    if torch.version.cuda is None:
        raise NotInstalledError(
            "the bench of CUDA modules compares with torch on the device",
            why=f"torch {torch.__version__} is a build for CPUs",
            hint=_TORCH,
        )
    if not torch.cuda.is_available():
        raise TargetError(
            f"torch {torch.__version__} finds no device, and fusion does",
            why=f"it is built for CUDA {torch.version.cuda}, and the driver is {described.get('cuda driver', '')}",
            hint="install a torch for this driver",
        )
    return f"{described['cuda:0']}, driver {described.get('cuda driver', '')}, torch {torch.__version__}"
