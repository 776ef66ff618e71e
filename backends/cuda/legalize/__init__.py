"""Forms of Relax operators for devices, in place of those for CPUs (`backends/tensorir/legalize/`): averages of windows
that are not all as wide, and what waits for other elements as loops of which each turn of an outermost one is a
thread: scatters, running sums, and the first elements in order. `kernels/lines/` binds them."""

from __future__ import annotations

from tvm import relax

from backends.cuda.legalize.pools import POOLS
from backends.cuda.legalize.scans import SCANS
from backends.cuda.legalize.scatters import SCATTERS
from backends.cuda.legalize.sorting import SORTING
from backends.tensorir.legalize.common import FLegalize
from fusion.declined import Declined
from fusion.shapes import known_shape


def _of_known_shapes(legalize: FLegalize) -> FLegalize:
    def checked(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        if any(known_shape(each) is None for each in call.args):
            raise Declined("only the run knows a shape of it")
        return legalize(builder, call)

    return checked


LEGALIZATIONS: dict[str, FLegalize] = {
    name: _of_known_shapes(legalize) for name, legalize in {**POOLS, **SCANS, **SCATTERS, **SORTING}.items()
}
