"""Kernels of any number of images, whose images are computed apart: the static kernel of one of them, for each.

Where its loops are one parallel loop, as those around products and windows are, its tasks become those of all images:

    for task in T.parallel(tasks): body(task)               # of one image
    for task in T.parallel(b * tasks): body(task % tasks)   # of image task // tasks

One of a single task is computed by one thread, or where that pays, by several for as many images:

    if b >= enough: for image in T.parallel(b): body
    else: for image in range(b): body

One of several parallel regions runs for one image after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.tirx import ForKind

from backends.cpu.costs import STITCHED_REGION_CYCLES
from backends.tensorir.emit import Expr, int64
from backends.tensorir.images import Images, read_images
from backends.tensorir.result import Scheduled
from backends.tensorir.stages import substitute
from backends.tensorir.symbols import bind
from fusion.declined import Declined
from fusion.structural import contains, find, map_nodes


def map_images(func: tirx.PrimFunc, threads: int, make: Callable[[tirx.PrimFunc], Scheduled]) -> Scheduled:
    """Return `func`, of which only a call knows how many images it has, with the loops that `make` gives one image.

    Raises:
        Declined: Its images are not apart, or `make` declines.
    """
    images = read_images(func)
    count = images.count

    def of_one() -> Scheduled:
        return make(bind(func, {count.name: 1}))

    def for_all(one: Scheduled, threads: int) -> tirx.Stmt:
        image = Var("image", "int64")
        return _for_all(_at_image(func, one.func, images, image), image, count, threads)

    made = of_one()
    body, enough = for_all(made, threads), _enough_images(made.cycles, threads)
    if _has_single_tasks(body, count) and enough > 1:
        body = tirx.IfThenElse(count >= enough, body, for_all(of_one(), 1))
    params = [
        param if place in images.axes else own
        for place, (param, own) in enumerate(zip(func.params, made.func.params, strict=True))
    ]
    mapped = tirx.PrimFunc(params, body, made.func.ret_type, made.func.attrs)
    return replace(made, func=mapped, tile=f"{made.tile}, for each of {count.name}", cycles=0.0)


def _enough_images(cycles: float, threads: int) -> int:
    """Return from how many images on it pays to compute them on several threads, where one takes so many cycles."""
    saved = cycles * (threads - 1) / threads
    return ceil(STITCHED_REGION_CYCLES / saved) if saved else 1


def _has_single_tasks(loops: tirx.Stmt, count: Var) -> bool:
    """Return whether `loops` are those of all images on several threads, each image a task."""
    return isinstance(loops, tirx.For) and loops.kind == ForKind.PARALLEL and count.same_as(loops.extent)


def _at_image(func: tirx.PrimFunc, one: tirx.PrimFunc, images: Images, image: Var) -> tirx.Stmt:
    """Return the body of `one`, a kernel of one image, for that number `image` of the parameters of `func`."""
    moved = {one.params[place]: (func.params[place], axis) for place, axis in images.axes.items()}

    def of_image(buffer: Var, indices: list[Expr]) -> list[Expr]:
        axis = moved[buffer][1]
        first, lanes = image * axis.rows, indices[axis.dim].ty.dtype.lanes
        first = tirx.Broadcast(first, lanes) if lanes > 1 else first
        return [*indices[: axis.dim], indices[axis.dim] + first, *indices[axis.dim + 1 :]]

    def load(found: TensorLoad) -> TensorLoad:
        if found.source not in moved:
            return found
        return tirx.BufferLoad(moved[found.source][0], of_image(found.source, list(found.indices)))

    def store(found: tirx.BufferStore) -> tirx.BufferStore:
        if found.buffer not in moved:
            return found
        return tirx.BufferStore(moved[found.buffer][0], found.value, of_image(found.buffer, list(found.indices)))

    body = map_nodes(one.body, (TensorLoad, load), (tirx.BufferStore, store))
    if contains(body, (Var, lambda var: var in moved)):
        raise Declined("the kernel of an image takes the address of a buffer")
    return body


def _for_all(body: tirx.Stmt, image: Var, count: Var, threads: int) -> tirx.Stmt:
    """Return the loops over all images around `body`, which is that of one."""
    if isinstance(body, tirx.AttrStmt):
        return tirx.AttrStmt(body.node, body.attr_key, body.value, _for_all(body.body, image, count, threads))
    if isinstance(body, tirx.For) and body.kind == ForKind.PARALLEL:
        return _tasks_of_all(body, image, count)
    has_regions = any(loop.kind == ForKind.PARALLEL for loop in find(body, tirx.For))
    kind = ForKind.SERIAL if has_regions or threads == 1 else ForKind.PARALLEL
    return tirx.For(image, int64(0), count, kind, body)


def _tasks_of_all(loop: tirx.For, image: Var, count: Var) -> tirx.For:
    """Return the tasks of all images, for those of one."""
    task = Var("task", "int64")
    own = {image: tirx.floordiv(task, loop.extent), loop.loop_var: tirx.floormod(task, loop.extent) + loop.min}
    return tirx.For(task, int64(0), count * loop.extent, ForKind.PARALLEL, substitute(loop.body, own))
