"""What a window over planes reads, and what it computes of it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.planar_window.plan import Planes, planes_of
from backends.tensorir.emit import Expr
from backends.tensorir.roles import Roles


@dataclass(frozen=True)
class PlanarWindow:
    """A depthwise convolution or a pool of planes.

    Attributes:
        data: The image, N x C x H x W.
        weight: C x KH x KW; None for a pool.
        planes: Its sizes.
        takes_max: Whether it is the maximum of what a window sees, and not the sum.
    """

    data: Var
    weight: Var | None
    planes: Planes
    takes_max: bool

    @staticmethod
    def of(roles: Roles) -> PlanarWindow:
        """Return the window that the anchor is."""
        data, *weights = roles.operands
        return PlanarWindow(
            data, weights[0] if weights else None, planes_of(roles), bool(int(roles.attrs["takes_max"]))
        )

    @property
    def identity(self) -> Expr:
        """What a window that sees nothing gives."""
        return tirx.const(-inf if self.takes_max else 0.0, "float32")
