"""The kernel of one image for any number of images, of the families built around windows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import tvm
from tvm import relax, tirx

from backends.cpu.kernels.priority import TEMPLATES
from backends.cpu.kernels.shared.mapped import map_images
from backends.cpu.kernels.template import Template
from backends.cpu.schedule import read_choices, schedule
from backends.tensorir.result import Scheduled
from backends.tensorir.space import Choices
from backends.tensorir.symbols import bind, symbols_of
from fusion import context
from fusion.structural import find
from fusion.symbolic.fit import Fit
from tests.backends.cpu.kernels.anchored import always, groups, normal
from tests.backends.cpu.kernels.examples import Example, examples_of
from tests.kept_code import unoptimised
from tests.passes.modules import weight
from tests.symbolic.unified import unified
from tests.targets import machine_code

PROBES = ({"b": 29}, {"b": 31}, {"b": 47})
MOST = 5
CONTEXT = context.resolve("llvm", threads=2)
MACHINE = CONTEXT.compiler.machine
WITHOUT = ("recurrent", "fallback_loops", "matmul", "batch_matmul", "matmul_nbits")
"""Those whose kernels are no images, or are any."""


def open_kernels(example: Example) -> list[tirx.PrimFunc]:
    """Return the kernels of `example` for any number of images."""
    inputs = [normal((at["b"], *example.shape[1:]), 0) for at in PROBES]
    forms = [groups(example.build, [x], always, MACHINE.vector_lanes) for x in inputs]
    return [unified(kernel, Fit(PROBES)) for kernel in zip(*forms, strict=True)]


def arguments(func: tirx.PrimFunc) -> list[np.ndarray]:
    return [normal([int(dim) for dim in param.ty.shape], place) for place, param in enumerate(func.params)]


def compiled(made: Scheduled, target: tvm.target.Target = CONTEXT.target) -> tvm.runtime.Module:
    return machine_code(tvm.IRModule({"k": made.func.with_attr("global_symbol", "k")}), target)


def results(library: tvm.runtime.Module, made: Scheduled, given: Sequence[np.ndarray], written: list[int]) -> list:
    """Return what a kernel writes to those of its parameters, which hold other numbers before."""
    given = [np.full_like(each, 7) if place in written else each for place, each in enumerate(given)]
    for place in made.repack.parameters if made.repack else ():
        given[place] = made.repack.pack(given[place])
    tensors = [tvm.runtime.tensor(each) for each in given]
    library["k"](*tensors)
    return [tensors[place].numpy() for place in written]


@pytest.mark.parametrize(
    "template", [each for each in TEMPLATES if each.name not in WITHOUT], ids=lambda template: template.name
)
def test_any_number_of_images_is_as_the_static_kernel_makes_them(template: Template) -> None:
    for example in examples_of(template):
        for func in open_kernels(example):
            made, static = schedule(func, MACHINE, 2), schedule(bind(func, {"b": MOST}), MACHINE, 2)
            assert not made.is_last_resort, made.note
            check(func, made, static)


@pytest.mark.parametrize("name", ["depthwise_conv2d", "rolling_window"])
def test_many_threads_have_loops_for_few_images_and_for_many(name: str) -> None:
    template = next(each for each in TEMPLATES if each.name == name)
    (func,) = open_kernels(examples_of(template)[0])
    made = schedule(func, MACHINE, 16)
    assert isinstance(made.func.body, tirx.IfThenElse)
    assert len({str(loop.extent) for loop in parallel_loops(made.func)}) == 2
    check(func, made, schedule(bind(func, {"b": 33}), MACHINE, 16), (0, 1, 15, 16, 17, 33))


def parallel_loops(func: tirx.PrimFunc) -> list[tirx.For]:
    return [loop for loop in find(func.body, tirx.For) if loop.kind == tirx.ForKind.PARALLEL]


def test_images_that_are_no_work_for_a_thread_are_shared_from_a_number_on() -> None:
    (func,) = open_kernels(Example(lambda builder, x: relax.op.mean(x, [1]), (1, 8, 16)))
    made = map_images(func, 2, choices_of)
    assert isinstance(made.func.body, tirx.IfThenElse)
    check(func, made, schedule(bind(func, {"b": 200}), MACHINE, 2), (0, 1, 2, 200))


def test_few_images_of_several_parallel_loops_follow_each_other() -> None:
    def centred(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return relax.op.subtract(x, builder.emit(relax.op.max(x, [1, 2], keepdims=True)))

    (func,) = open_kernels(Example(centred, (1, 64, 512)))
    made = map_images(func, 2, choices_of)
    many, few = made.func.body.then_case, made.func.body.else_case
    assert (many.kind, few.kind) == (tirx.ForKind.PARALLEL, tirx.ForKind.SERIAL)
    assert parallel_loops(made.func.with_body(few))
    check(func, made, schedule(bind(func, {"b": MOST}), MACHINE, 2))


@pytest.mark.parametrize(("rows", "is_mapped"), [(49, True), (1, False)])
def test_products_of_many_rows_are_computed_image_by_image(rows: int, is_mapped: bool) -> None:
    (func,) = open_kernels(Example(lambda builder, x: relax.op.matmul(x, weight(96, 80)), (1, rows, 96)))
    made = schedule(func, MACHINE, 2)
    assert ("for each of b" in made.tile) == is_mapped
    check(func, made, schedule(bind(func, {"b": MOST}), MACHINE, 2))


def choices_of(func: tirx.PrimFunc, threads: int) -> Choices:
    found = read_choices(func, MACHINE, threads)
    assert found is not None
    return found


def check(func: tirx.PrimFunc, made: Scheduled, static: Scheduled, counts: Sequence[int] = (0, 1, 2, MOST)) -> None:
    """Hold the first images of each number of them to those that the static kernel makes."""
    assert symbols_of(made.func)
    given, one = arguments(bind(func, {"b": counts[-1]})), arguments(bind(func, {"b": 1}))
    written = [
        place for place, param in enumerate(func.params)
        if any(store.buffer.same_as(param) for store in find(func.body, tirx.BufferStore))
    ]  # fmt: skip
    # What is compared with has tests of its own, of what LLVM makes of it too.
    expected = results(compiled(static, unoptimised(CONTEXT.target)), static, given, written)
    library = compiled(made)
    for count in counts:
        rows = [len(alone) * count if len(alone) != len(each) else None for alone, each in zip(one, given, strict=True)]
        got = results(library, made, [each[:many] for each, many in zip(given, rows, strict=True)], written)
        for place, have, want in zip(written, got, expected, strict=True):
            np.testing.assert_allclose(have, want[: rows[place]], rtol=1e-4, atol=1e-4)
