"""For which machine a module was compiled, and whether it runs on this one."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusion.errors import TargetError
from fusion.module.cpu_features import host_architecture, host_system, missing_features, needed_features

if TYPE_CHECKING:
    from fusion.context import Context


@dataclass(frozen=True)
class Settings:
    """What of the context stays with the compiled module.

    Attributes:
        target: The target as JSON text of TVM.
        architecture: First part of its triple, such as "x86_64".
        features: LLVM's names of the CPU features the code may use.
        threads: Worker threads at run time.
        device: What runs the kernels, where that is no CPU; otherwise "".
    """

    target: str
    architecture: str
    features: tuple[str, ...]
    threads: int
    device: str = ""


def settings_of(ctx: Context) -> Settings:
    """Return what a module compiled with `ctx` must remember."""
    triple = str(ctx.target.attrs.get("mtriple", ""))
    architecture = triple.partition("-")[0] or host_architecture()
    features = needed_features(architecture, ctx.compiler.features)
    return Settings(str(ctx.target), architecture, features, ctx.threads, ctx.compiler.device)


def refusal(settings: Settings) -> TargetError | None:
    """Return why this machine cannot run code made for `settings`, None where it can.

    Its architecture or system is another one, its CPU lacks features, which the error names, or a device runs it.
    """
    if settings.device:
        return TargetError(
            f"the module was compiled for {settings.device}, and this version starts no kernels on such a device",
            why="it has no runtime for them, whatever driver there is",
            hint="save it, and start its kernels as docs/design/cuda.md says, or compile the model with "
            'target="llvm" to run it on this machine\'s CPU',
        )
    here, there = (host_architecture(), host_system()), (settings.architecture, system_of(settings))
    if there != here:
        return TargetError(
            f"the module was compiled for {' '.join(there)} and this machine is {' '.join(here)}",
            hint="save it and load it on a machine of its kind, or compile the model again for this one",
        )
    missing = missing_features(settings.features)
    if missing:
        older = "x86-64-v3" if settings.architecture == "x86_64" else "generic"
        return TargetError(
            f"this CPU lacks features the module was compiled for: {', '.join(missing)}",
            why=f"the module's target is {settings.target}",
            hint=f'compile the model again on this machine, or for an older CPU: target="llvm -mcpu={older}"',
        )
    return None


def check_runnable(settings: Settings) -> None:
    """Raise if this machine cannot run code made for `settings`.

    Raises:
        TargetError: What `refusal` returns.
    """
    reason = refusal(settings)
    if reason is not None:
        raise reason


def system_of(settings: Settings) -> str:
    """Return the system of the target's triple: `resolve` allows Linux and this machine's own."""
    triple = re.search(r'"mtriple":"([^"]*)"', settings.target)
    return "linux" if triple and "linux" in triple[1] else host_system()
