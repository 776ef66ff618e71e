"""Turn complex Relax operators into anchored TensorIR calls with packed weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from backends.cpu.anchors.channels_last_pool import lower_channels_last_pool
from backends.cpu.anchors.conv2d import lower_conv2d
from backends.cpu.anchors.conv2d_transpose import lower_conv2d_transpose
from backends.cpu.anchors.depthwise import lower_depthwise
from backends.cpu.anchors.image_conv2d import lower_image_conv2d
from backends.cpu.anchors.matmul import lower_matmul
from backends.cpu.anchors.planar import lower_planar_depthwise, lower_planar_pool
from fusion.failures import Failures

Lower = Callable[[relax.BlockBuilder, relax.Call, int], relax.Expr | None]

LOWERINGS: dict[str, tuple[Lower, ...]] = {
    "relax.matmul": (lower_matmul,),
    "relax.nn.conv2d_transpose": (lower_conv2d_transpose,),
    "relax.nn.conv2d": (lower_depthwise, lower_planar_depthwise, lower_image_conv2d, lower_conv2d),
    "relax.nn.max_pool2d": (lower_planar_pool, lower_channels_last_pool),
    "relax.nn.avg_pool2d": (lower_planar_pool,),
}


@dataclass(frozen=True)
class LowerAnchors:
    """`R.nn.conv2d(x, w)`  ->  `R.call_tir(conv2d, (x, packed w))`; what no lowering takes is left to `LegalizeOps`.

    Attributes:
        lanes: float32 lanes of a vector, the width of a weight panel.
        failures: Takes which lowerings failed; such a call is left to `LegalizeOps` too.
    """

    lanes: int
    failures: Failures = field(default_factory=Failures)
    name: str = "lower_anchors"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        rewriter = _Lower(mod, self.lanes, self.failures)
        rewriter.builder_.update_func(mod.get_global_var("main"), rewriter.visit_expr(mod["main"]))
        return rewriter.builder_.get()


@mutator
class _Lower(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    def __init__(self, mod: tvm.IRModule, lanes: int, failures: Failures) -> None:
        super().__init__(mod)
        self.lanes, self.failures = lanes, failures

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Try the lowerings of one operator in order."""
        call = self.visit_expr_post_order(call)
        for lower in LOWERINGS.get(str(getattr(call.op, "name", "")), ()):
            lowered = self._lower(lower, call)
            if lowered is not None:
                return lowered
        return call

    def _lower(self, lower: Lower, call: relax.Call) -> relax.Expr | None:
        try:
            return lower(self.builder_, call, self.lanes)
        except MemoryError:
            raise
        except Exception as error:  # a lowering may have any defect, and TVM prints a warning where one passes
            self.failures.add(f"{lower.__name__} failed, and another form is used", error)
            return None
