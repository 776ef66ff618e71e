"""What the lanes of a warp know of each other."""

from __future__ import annotations

from tvm import tirx

from backends.cuda.devices import WARP
from backends.tensorir.emit import Expr


def shuffled(value: Expr, distance: int) -> Expr:
    """Return a value of the lane whose number differs in the bit `distance`; all lanes of the warp take part."""
    all_lanes = tirx.const(-1, "int32")
    return tirx.call_intrin(str(value.ty.dtype), "tirx.tvm_warp_shuffle_xor", all_lanes, value, distance, WARP, WARP)
