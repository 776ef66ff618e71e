"""For which machine a module was compiled, and whether it runs on this one."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.registry import device_runtime
from fusion.errors import TargetError
from fusion.module.cpu_features import host_architecture, host_system, missing_features, needed_features
from fusion.options import GENERATOR

if TYPE_CHECKING:
    from fusion.context import Context


@dataclass(frozen=True)
class Settings:
    """What of the context stays with the compiled module.

    Attributes:
        target: The target as JSON text of TVM.
        architecture: First part of its triple, such as "x86_64".
        features: LLVM's names of the CPU features the code may use; of a device, the architectures there is code for.
        threads: Worker threads at run time.
        device: What runs the kernels, where that is no CPU; otherwise "".
    """

    target: str
    architecture: str
    features: tuple[str, ...]
    threads: int
    device: str = ""

    @property
    def kind(self) -> str:
        """The kind of the target."""
        return str(json.loads(self.target)["kind"])

    @property
    def generator(self) -> str:
        """What placements call the kernels that are written for it."""
        return self.kind if self.device else GENERATOR


def settings_of(ctx: Context) -> Settings:
    """Return what a module compiled with `ctx` must remember."""
    triple = str(ctx.target.attrs.get("mtriple", ""))
    architecture = triple.partition("-")[0] or host_architecture()
    names = ctx.compiler.features
    features = tuple(sorted(names)) if ctx.compiler.device else needed_features(architecture, names)
    return Settings(str(ctx.target), architecture, features, ctx.threads, ctx.compiler.device)


def refusal(settings: Settings) -> TargetError | None:
    """Return why this machine cannot run code made for `settings`, None where it can.

    Its architecture or system is another one, its CPU lacks features, which the error names, or it has no device.
    """
    if settings.device:
        return _why_no_device(settings)
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


def _why_no_device(settings: Settings) -> TargetError | None:
    """Return why no device here runs the code, with what it was compiled for."""
    error = device_runtime(settings.kind).refusal(settings.features)
    if error is None:
        return None
    return TargetError(error.what, where=f"a module for {settings.device}", why=error.why, hint=error.hint)


def system_of(settings: Settings) -> str:
    """Return the system of the target's triple: `resolve` allows Linux and this machine's own."""
    triple = re.search(r'"mtriple":"([^"]*)"', settings.target)
    return "linux" if triple and "linux" in triple[1] else host_system()
