"""What every pass of the pipeline promises: a module that is well-formed, an input and a pass that are left as they
were, and nothing more to do when it runs again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass

import pytest
import tvm
import tvm_ffi
from tvm import relax

from backends.tensorir.schedule_kernels import ScheduleKernels
from fusion import context, pipeline
from fusion.facts import TellingPass
from fusion.frontends import import_model
from tests.passes.modules import Pass, canonical
from tests.passes.random_graphs import random_graph
from tests.passes.test_pipeline import GRAPHS, model_of

MODELS = {graph.__name__: model_of(graph) for graph in GRAPHS} | {
    f"random graph {seed}": random_graph(seed)[0] for seed in range(5)
}
UNSETTLED = {"schedule_kernels"}
"""What would cut loops once more that are cut already: those of plain schedules are blocks still."""


def passes() -> Iterator[tuple[str, Pass]]:
    """Yield the passes of a whole compilation in order, by name, for a graph without branches."""
    ctx = context.resolve("llvm", threads=2)
    alone = [*pipeline.operator_passes(ctx), *pipeline.group_passes(ctx, ctx.compiler.why_not_fused)]
    for each in (*alone, *pipeline.joining_passes({}), ScheduleKernels(ctx.compiler.schedule)):
        yield pipeline.name_of(each), each


def copied(mod: tvm.IRModule) -> tvm.IRModule:
    """Return a module of its own with everything that `mod` has: functions, attributes, constants, and what the module
    itself carries."""
    return tvm.ir.load_json(tvm.ir.save_json(mod))


def state(value: object) -> object:
    """Return what tells whether something is written into `value`, a pass or a part of one."""
    if is_dataclass(value) and not isinstance(value, type):
        return type(value), [state(getattr(value, field.name)) for field in fields(value)]
    if isinstance(value, Mapping):
        return [(key, state(each)) for key, each in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [state(each) for each in value]
    return id(value)


@pytest.mark.parametrize("name", MODELS)
def test_contracts(name: str) -> None:
    mod = import_model(MODELS[name], strict=True).mod
    told: list[tuple[str, object, str]] = []
    with context.resolve("llvm").target:
        for title, apply in passes():
            before, own = copied(mod), state(apply)
            if isinstance(apply, TellingPass):
                result = apply.run(mod)
                after = result.mod
                told.append((title, result.fact, repr(result.fact)))
            else:
                after = apply(mod)
            assert tvm_ffi.structural_equal(mod, before), f"{title} changes its input"
            relax.analysis.well_formed(after)
            again = canonical(apply(after))
            assert state(apply) == own, f"{title} keeps something of what it was called with"
            if title not in UNSETTLED:
                assert tvm_ffi.structural_equal(again, canonical(after)), f"{title} has more to do when it runs again"
            mod = after
    for title, fact, text in told:
        assert repr(fact) == text, f"what {title} told was changed by a later pass"
