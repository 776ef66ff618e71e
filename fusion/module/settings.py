"""For which machine a module was compiled, and whether it runs on this one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fusion.errors import TargetError
from fusion.module.cpu_features import host_architecture, missing_features, needed_features

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
    """

    target: str
    architecture: str
    features: tuple[str, ...]
    threads: int


def settings_of(ctx: Context) -> Settings:
    """Return what a module compiled with `ctx` must remember."""
    triple = str(ctx.target.attrs.get("mtriple", ""))
    architecture = triple.partition("-")[0] or host_architecture()
    return Settings(str(ctx.target), architecture, needed_features(architecture, ctx.features), ctx.threads)


def check_runnable(settings: Settings) -> None:
    """Raise if this CPU cannot run code made for `settings`.

    Raises:
        TargetError: The architecture is another one, or features are missing; the error names them.
    """
    architecture = host_architecture()
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
