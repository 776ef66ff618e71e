"""Kernels of any number of images, whose images are computed apart: the static kernel of one of them, for each.

Where its loops are one parallel loop, as those around products and windows are, its tasks become those of all images:

    for task in T.parallel(tasks): body(task)               # of one image
    for task in T.parallel(b * tasks): body(task % tasks)   # of image task // tasks

Tasks that many threads share are smaller than is good for many images. Where the estimates tell them apart, the call
has the choice between these and the kernel of an image for one thread:

    if ceil(b / threads) * alone < b * shared: for image in T.parallel(b): body
    else: ...

An image that is too short to be shared is one task, and several threads get some where there are enough of them:

    if b >= enough: for image in T.parallel(b): body
    else: for image in range(b): body

One of several parallel loops runs for one image after the other, where there are not enough for the kernel of one
thread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.tirx import ForKind

from backends.cpu.costs import STITCHED_REGION_CYCLES
from backends.tensorir.emit import Expr, Nest
from backends.tensorir.images import Images, read_images
from backends.tensorir.result import Scheduled
from backends.tensorir.space import Choices, Point
from backends.tensorir.stages import substitute
from backends.tensorir.symbols import bind
from fusion.declined import Declined
from fusion.structural import contains, find, map_nodes

Read = Callable[[tirx.PrimFunc, int], Choices]
"""(kernel, threads) -> what its template leaves open."""

_MANY = 32
_ROUNDS = 4
"""How many images a thread has where there are many of them."""
_WORTH = 1.2
"""How much longer many images have to take in shared tasks before a kernel gets loops for them."""


_APART = 1.35
"""How much longer images may take one by one than as one, by estimates, which read all weights from memory for each:
products of 49 rows, at 1.3, took the same time both ways, those of one row, at 4 and 11, 5 times less as one."""


def map_long_images(func: tirx.PrimFunc, threads: int, read: Read) -> Scheduled:
    """Return `func` as `map_images` does, where images are long enough to lose nothing by it: the rows of one fill
    tiles, and use weights often enough.

    Raises:
        Declined: It is faster to compute many as one, or for the reasons of `map_images`.
    """
    mapped = _Mapped(func, read_images(func), threads, read)
    one, many = (mapped.choices(images, 1).space.default.cycles / images for images in (1, _MANY))
    if one > many * _APART:
        raise Declined("it computes many images as one in less time")
    return map_images(func, threads, read)


def map_images(func: tirx.PrimFunc, threads: int, read: Read) -> Scheduled:
    """Return `func`, of which only a call knows how many images it has, with the loops that `read` gives one image.

    Raises:
        Declined: Its images are not apart, or `read` declines.
    """
    mapped = _Mapped(func, read_images(func), threads, read)
    choices = mapped.choices(1, threads)
    made = choices.emit(choices.space.default)
    shared = mapped.for_all(made)
    if threads == 1:
        body = shared
    elif mapped.has_single_tasks(shared):
        body = mapped.with_serial(shared, choices, made)
    else:
        body = mapped.with_images_alone(shared, choices.space.default, made)
    params = [
        param if place in mapped.images.axes else own
        for place, (param, own) in enumerate(zip(func.params, made.func.params, strict=True))
    ]
    kernel = tirx.PrimFunc(params, body, made.func.ret_type, made.func.attrs)
    return replace(made, func=kernel, tile=f"{made.tile}, for each of {mapped.images.count.name}", cycles=0.0)


@dataclass(frozen=True)
class _Mapped:
    """A kernel whose images are apart.

    Attributes:
        read: Says what the template of a static kernel leaves open.
    """

    func: tirx.PrimFunc
    images: Images
    threads: int
    read: Read

    def choices(self, images: int, threads: int) -> Choices:
        """Return what is open of the kernel of so many images."""
        return self.read(bind(self.func, {self.images.count.name: images}), threads)

    def for_all(self, one: Scheduled, kind: ForKind = ForKind.PARALLEL) -> tirx.Stmt:
        """Return the loops over all images around those of `one`, of this kind where it has no tasks."""
        image = Var("image", "int64")
        return _for_all(_at_image(self.func, one.func, self.images, image), image, self.images.count, kind)

    def has_single_tasks(self, loops: tirx.Stmt) -> bool:
        """Return whether each image is a task in `loops`."""
        return (
            isinstance(loops, tirx.For) and loops.kind == ForKind.PARALLEL and self.images.count.same_as(loops.extent)
        )

    def with_serial(self, loops: tirx.Stmt, choices: Choices, made: Scheduled) -> tirx.Stmt:
        """Return `loops`, whose tasks are images as `made` computes them, for as many as it pays to share; others one
        thread computes."""
        saved = made.cycles * (self.threads - 1) / self.threads
        enough = ceil(STITCHED_REGION_CYCLES / saved) if saved else 1
        if enough == 1:
            return loops
        alone = self.for_all(_with_parameters_of(made, choices.emit(choices.space.default)), ForKind.SERIAL)
        return _either(self.images.count >= enough, loops, alone)

    def with_images_alone(self, loops: tirx.Stmt, point: Point, made: Scheduled) -> tirx.Stmt:
        """Return `loops`, whose tasks are parts of images at `point`, and where it pays the loops for many images."""
        choices = self.choices(1, 1)
        alone = choices.space.default.cycles
        if made.cycles * self.threads <= alone * _WORTH:
            return loops  # not even one image by itself takes so much longer
        follow_each_other = isinstance(loops, tirx.For) and loops.kind == ForKind.SERIAL
        shared = made.cycles if follow_each_other else self._cycles_among_many(point)
        other = choices.emit(choices.space.default)
        if shared * self.threads <= alone * _WORTH or other.repack != made.repack:
            return loops
        count, threads = self.images.count, self.threads
        is_shorter = tirx.floordiv(count + (threads - 1), threads) * ceil(alone) <= count * ceil(shared)
        return _either(is_shorter, self.for_all(_with_parameters_of(made, other)), loops)

    def _cycles_among_many(self, point: Point) -> float:
        """Return what an image takes at `point` among many, 0 where that is not known."""
        many = _ROUNDS * self.threads
        points = self.choices(many, self.threads).space
        return next((each.cycles / many for each in points if str(each) == str(point)), 0.0)


def _with_parameters_of(made: Scheduled, other: Scheduled) -> Scheduled:
    """Return `other` with the parameters of `made`, which packs weights as it does: each has its own for these."""
    own = dict(zip(other.func.params, made.func.params, strict=True))
    body = substitute(other.func.body, own)
    return replace(other, func=tirx.PrimFunc(made.func.params, body, made.func.ret_type, made.func.attrs))


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


def _for_all(body: tirx.Stmt, image: Var, count: Var, kind: ForKind) -> tirx.Stmt:
    """Return the loops over all images around `body`, which is that of one, of this kind where it has no tasks."""
    if isinstance(body, tirx.AttrStmt):
        return tirx.AttrStmt(body.node, body.attr_key, body.value, _for_all(body.body, image, count, kind))
    if isinstance(body, tirx.For) and body.kind == ForKind.PARALLEL:
        return _tasks_of_all(body, image, count)
    if any(loop.kind == ForKind.PARALLEL for loop in find(body, tirx.For)):
        kind = ForKind.SERIAL
    return _loop(image, count, kind, body)


def _tasks_of_all(loop: tirx.For, image: Var, count: Var) -> tirx.Stmt:
    """Return the tasks of all images, for those of one."""
    task = Var("task", "int64")
    own = {image: tirx.floordiv(task, loop.extent), loop.loop_var: tirx.floormod(task, loop.extent) + loop.min}
    return _loop(task, count * loop.extent, ForKind.PARALLEL, substitute(loop.body, own))


def _loop(var: Var, extent: Expr, kind: ForKind, body: tirx.Stmt) -> tirx.Stmt:
    nest = Nest()
    nest.add_loop(var, extent, kind, [body])
    return nest.finish()


def _either(condition: Expr, then: tirx.Stmt, otherwise: tirx.Stmt) -> tirx.Stmt:
    nest = Nest()
    nest.choose(condition, lambda: nest.add(then), lambda: nest.add(otherwise))
    return nest.finish()
