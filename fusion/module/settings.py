"""For which machine a module was compiled, and whether it runs on this one."""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi

from fusion.context import Context
from fusion.errors import TargetError


@dataclass(frozen=True)
class Settings:
    """What of the context stays with the compiled module.

    Attributes:
        target: The target as JSON text of TVM.
        architecture: First part of its triple, such as "x86_64".
        features: LLVM's names of the CPU features the code may use, tuning hints included.
        threads: Worker threads at run time.
    """

    target: str
    architecture: str
    features: tuple[str, ...]
    threads: int


def settings_of(ctx: Context) -> Settings:
    """Return what a module compiled with `ctx` must remember."""
    triple = str(ctx.target.attrs.get("mtriple", "")) or _host_triple()
    return Settings(str(ctx.target), triple.partition("-")[0], tuple(sorted(ctx.features)), ctx.threads)


def check_runnable(settings: Settings) -> None:
    """Raise if this CPU cannot run code made for `settings`.

    Raises:
        TargetError: The architecture is another one, or features are missing; the error names them.
    """
    architecture = _host_triple().partition("-")[0]
    if settings.architecture != architecture:
        raise TargetError(
            f"the module was compiled for {settings.architecture} and this machine is {architecture}",
            hint="compile the model again on this machine, or run the module on a machine of its kind",
        )
    missing = missing_features(settings.features)
    if missing:
        raise TargetError(
            f"this CPU lacks features the module was compiled for: {', '.join(missing)}",
            why=f"the module's target is {settings.target}",
            hint='compile the model again on this machine, or for an older CPU: target="llvm -mcpu=x86-64-v3"',
        )


def missing_features(features: tuple[str, ...]) -> list[str]:
    """Return those of `features` that LLVM can detect on this architecture and does not find on this CPU.

    A target's feature list also holds tuning hints ("prefer-256-bit"), which no CPU reports.
    """
    found = tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    present = {str(name): bool(int(on)) for name, on in found.items()}
    return sorted(name for name in features if not present.get(name, True))


def _host_triple() -> str:
    return str(tvm_ffi.get_global_func("tvm.codegen.llvm.GetProcessTriple")())
