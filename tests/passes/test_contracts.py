"""What every pass of the pipeline promises: a module that is well-formed, an input that is left as it was, and nothing
more to do when it runs again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tvm_ffi
from tvm import relax

from backends.tensorir.schedule_kernels import ScheduleKernels
from fusion import context, pipeline
from fusion.frontends import import_model
from fusion.report.record import Trace
from partition.form_groups import FormGroups
from tests.passes.modules import Pass, canonical
from tests.passes.random_graphs import random_graph
from tests.passes.test_pipeline import GRAPHS, model_of

MODELS = {graph.__name__: model_of(graph) for graph in GRAPHS} | {
    f"random graph {seed}": random_graph(seed)[0] for seed in range(8)
}
UNSETTLED = {"schedule_kernels"}
"""What would cut loops once more that are cut already: those of plain schedules are blocks still."""


def passes() -> Iterator[tuple[str, Pass]]:
    """Yield the passes of a whole compilation in order, by name, for a graph without branches."""
    ctx = context.resolve("llvm", threads=2)
    trace = Trace(FormGroups(ctx.compiler.decline_fusion, start_bytes=ctx.compiler.memory.start))
    kernels = ScheduleKernels(ctx.compiler.schedule)
    for each in (*pipeline.graph_passes(ctx, trace), *pipeline.kernel_passes({}, kernels)):
        yield pipeline.name_of(each), each


@pytest.mark.parametrize("name", MODELS)
def test_contracts(name: str) -> None:
    mod = import_model(MODELS[name], strict=True).mod
    with context.resolve("llvm").target:
        for title, apply in passes():
            text = mod.script()
            after = apply(mod)
            assert mod.script() == text, f"{title} changes its input"
            relax.analysis.well_formed(after)
            again = canonical(apply(after))
            if title not in UNSETTLED:
                assert tvm_ffi.structural_equal(again, canonical(after)), f"{title} has more to do when it runs again"
            mod = after
