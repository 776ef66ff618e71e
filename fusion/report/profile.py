"""How long each kernel of a compiled model takes, and how that compares with what the machine can do."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.kernel import KernelInfo
from backends.machine_limits import MachineLimits, Stream
from fusion.carried_errors import take_raised
from fusion.module.open_plan import describe_sizes
from fusion.module.plan import Argument, Condition, KernelCall
from fusion.module.program import Arena, KernelProgram, RunMemory
from fusion.module.specialization import Specialization
from fusion.report.known_limits import known_limits
from fusion.report.table import format_table, number, shorten
from fusion.runtime import Tensor
from fusion.tensors import allocate_tensor, as_numpy, tensor_bytes, view

_MIN_ROUNDS, _MAX_ROUNDS = 3, 200


@dataclass(frozen=True)
class KernelTime:
    """All calls of one kernel in one run of the model.

    Attributes:
        kernel: Its name.
        ops, template, tile: As in `KernelInfo`; empty where the kernel is not described.
        calls: How often the model calls it.
        seconds: Of all these calls together; the median over the rounds.
        flops: Floating-point operations of all calls; None where unknown.
        bytes: Bytes that all calls at least read and write.
        roofline: Least time these calls could take over the time they took; None where the operations are unknown.
            Weights lie in the cache that holds those of the whole model, other data in that which holds the kernel's.
        bound: What sets that least time: "compute", or where most of the data lies.
    """

    kernel: str
    ops: tuple[str, ...]
    template: str
    tile: str
    calls: int
    seconds: float
    flops: int | None
    bytes: int
    roofline: float | None
    bound: str

    @property
    def gflops(self) -> float | None:
        """Operations in 1e9 per second."""
        return None if self.flops is None else self.flops / self.seconds / 1e9

    @property
    def gbs(self) -> float:
        """Bytes in 1e9 per second."""
        return self.bytes / self.seconds / 1e9


@dataclass(frozen=True)
class Profile:
    """The kernels of one run, the slowest first.

    Attributes:
        kernels: One entry for each kernel.
        total_s: Seconds of a whole run, measured by itself.
        limits: The machine's own, measured on this occasion.
        sizes: Those of the run: "batch 3, width 40" where the form is for all, else the shapes of the inputs.
    """

    kernels: tuple[KernelTime, ...]
    total_s: float
    limits: MachineLimits
    sizes: str = ""

    @property
    def outside_s(self) -> float:
        """Seconds of a run spent outside the kernels listed; around 0, where it can be negative by noise."""
        return self.total_s - sum(kernel.seconds for kernel in self.kernels)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON."""
        kernels = [{**dataclasses.asdict(k), "gflops": k.gflops, "gbs": k.gbs} for k in self.kernels]
        return {
            "total_s": self.total_s, "outside_s": self.outside_s, "sizes": self.sizes,
            "limits": dataclasses.asdict(self.limits), "kernels": kernels,
        }  # fmt: skip

    def __str__(self) -> str:
        header = ("kernel", "calls", "ms", "%", "GFLOP/s", "GB/s", "roofline", "bound", "operators and tile")
        rows = [_row(kernel, self.total_s) for kernel in self.kernels]
        rows.append(
            ("outside", "", f"{self.outside_s * 1e3:.3f}", f"{100 * self.outside_s / self.total_s:.1f}", *[""] * 5)
        )
        rows.append(("whole run", "", f"{self.total_s * 1e3:.3f}", "100.0", *[""] * 5))
        levels = ", ".join(f"{level.name} {level.gbs:.0f}" for level in self.limits.levels)
        limits = f"{self.limits.threads} threads; limits: {self.limits.peak_gflops:.0f} GFLOP/s; GB/s from {levels}"
        at = f"at {self.sizes}\n" if self.sizes else ""
        return f"{at}{format_table(header, rows)}\n{limits}"


def _row(kernel: KernelTime, total_s: float) -> tuple[str, ...]:
    about = " ".join((*kernel.ops, kernel.tile))
    return (
        shorten(kernel.kernel, 40),
        str(kernel.calls),
        f"{kernel.seconds * 1e3:.3f}",
        f"{100 * kernel.seconds / total_s:.1f}",
        number(kernel.gflops, ".1f"),
        f"{kernel.gbs:.1f}",
        number(kernel.roofline, ".0%"),
        kernel.bound,
        shorten(about, 60),
    )


def profile(form: Specialization, arrays: Sequence[np.ndarray], threads: int, seconds: float) -> Profile:
    """Return the profile of a run of `form` on `arrays`, one for each input.

    The whole run and the kernels one by one are repeated for about `seconds` each.

    Kernels run one by one in the model's own order, each on the buffers it has in a run, so that the caches hold what
    they hold then. The call from Python adds about 0.3 us to each. Of an If, only the branch that the run took is
    listed; neither, where a fallback or another If returns the condition itself: then both count as "outside".
    """
    limits = known_limits(threads)
    program = form.program
    total_s = median_of(lambda: program.run(arrays), seconds)
    if not isinstance(program, KernelProgram):
        return Profile((), total_s, limits, sizes_of(form, arrays))
    program.library.use_threads(threads)
    calls, medians = time_calls(program, arrays, seconds)
    weight_bytes = sum(tensor_bytes(tuple(w.shape), str(w.dtype)) for w in program.weights)
    kernels = form.kernels_at(tuple(array.shape for array in arrays))
    times = _sum_by_kernel(calls, medians, kernels, limits, weight_bytes)
    return Profile(tuple(sorted(times, key=lambda kernel: -kernel.seconds)), total_s, limits, sizes_of(form, arrays))


def time_calls(
    program: KernelProgram, arrays: Sequence[np.ndarray], seconds: float
) -> tuple[list[KernelCall], list[float]]:
    """Return the kernel calls of a run on `arrays`, and the median seconds of each over about `seconds`, on as many
    threads as the calling one uses."""
    memory = program.arenas.take()
    try:
        bound = bind_calls(program, memory, arrays)
        rounds = rounds_of(lambda: [timed(call) for call in bound], seconds)
    finally:
        program.arenas.give(memory)
    return [call.plan for call in bound], [statistics.median(times) for times in zip(*rounds, strict=True)]


def bind_calls(program: KernelProgram, memory: RunMemory, arrays: Sequence[np.ndarray]) -> list[BoundCall]:
    """Return the kernel calls of a run on `arrays`, which may be made again for as long as nobody else has the
    `memory`."""
    program.run_in(memory, arrays)
    return _taken_calls(program, memory.at(arrays), arrays)


def sizes_of(form: Specialization, arrays: Sequence[np.ndarray]) -> str:
    """Return the sizes that `arrays` have, of a form for one shape the shapes of all that are tensors."""
    sizes = None if form.opened is None else form.opened.sizes([array.shape for array in arrays])
    if sizes is not None:
        return describe_sizes(sizes)
    pairs = zip(form.inputs, arrays, strict=True)
    return shorten(", ".join(f"{spec.name} {list(array.shape)}" for spec, array in pairs if spec.is_tensor), 200)


def timed(call: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def median_of(call: Callable[[], object], seconds: float) -> float:
    """Return the median of the seconds of a call that is repeated for about `seconds`, after one to warm up."""
    return statistics.median(took for (took,) in rounds_of(lambda: [timed(call)], seconds))


def rounds_of(measure: Callable[[], list[float]], seconds: float) -> list[list[float]]:
    """Repeat `measure` for about `seconds`, after one round to warm up."""
    measure()
    results: list[list[float]] = []
    deadline = time.perf_counter() + seconds
    while len(results) < _MIN_ROUNDS or (time.perf_counter() < deadline and len(results) < _MAX_ROUNDS):
        results.append(measure())
    return results


@dataclass(frozen=True)
class BoundCall:
    """A kernel call with its tensors.

    Attributes:
        plan: Which call it is.
        function: The kernel.
        tensors: What it is called with.
    """

    plan: KernelCall
    function: Callable[..., object]
    tensors: tuple[Tensor, ...]

    def __call__(self) -> object:
        try:
            return self.function(*self.tensors)
        except RuntimeError:
            error = take_raised()
            if error is None:
                raise
            return error  # of a check of memory that only a run fills


def _taken_calls(program: KernelProgram, arena: Arena, arrays: Sequence[np.ndarray]) -> list[BoundCall]:
    """Return the kernel calls that a run on `arrays` makes; `arena` was used for one, so its conditions are there."""
    inputs = tuple(slot.bind(array) for slot, array in zip(arena.slots, arrays, strict=True))
    opened = len(arena.constants) - len(program.weights) - len(arena.buffers)  # constants that depend on sizes
    known = {"input": (*inputs, *arena.constants[:opened]), "weight": program.weights, "buffer": arena.buffers}
    tensors: dict[Argument, Tensor] = {}

    def find(argument: Argument) -> Tensor:
        if argument not in tensors:
            tensors[argument] = _find_tensor(argument, known)
        return tensors[argument]

    def holds(condition: Condition) -> bool:
        return condition.tensor.kind != "fresh" and bool(as_numpy(find(condition.tensor))) is condition.value

    taken = [call for call in program.calls(arrays) if all(map(holds, call.conditions))]
    functions = {call.kernel: program.library.functions.get_function(call.kernel, query_imports=True) for call in taken}
    return [BoundCall(call, functions[call.kernel], tuple(map(find, call.arguments))) for call in taken]


def _find_tensor(argument: Argument, known: Mapping[str, Sequence[Tensor]]) -> Tensor:
    if argument.kind == "fresh":
        return allocate_tensor(argument.shape, argument.dtype)
    tensor = known[argument.kind][argument.index]
    return tensor if tuple(tensor.shape) == argument.shape else view(tensor, argument.dtype, argument.shape)


def _sum_by_kernel(
    calls: Sequence[KernelCall],
    seconds: Sequence[float],
    kernels: Mapping[str, KernelInfo],
    limits: MachineLimits,
    weight_bytes: int,
) -> list[KernelTime]:
    grouped: dict[str, list[tuple[KernelCall, float]]] = defaultdict(list)
    for call, time_s in zip(calls, seconds, strict=True):
        grouped[call.kernel].append((call, time_s))
    return [_kernel_time(entries, kernels.get(name), limits, weight_bytes) for name, entries in grouped.items()]


def _kernel_time(
    entries: Sequence[tuple[KernelCall, float]], info: KernelInfo | None, limits: MachineLimits, weight_bytes: int
) -> KernelTime:
    """Return the report of the calls of one kernel; what it is called with has the same sizes in each."""
    call, count = entries[0][0], len(entries)
    seconds = sum(time_s for _, time_s in entries)
    weights = sum(tensor_bytes(a.shape, a.dtype) for a in call.arguments if a.kind == "weight")
    others = sum(tensor_bytes(a.shape, a.dtype) for a in call.arguments if a.kind != "weight")
    if info is not None and info.bytes:
        others = min(others, info.bytes)  # of a joined tensor a kernel may write a part only
    moved = count * (weights + others)
    if info is None:
        return KernelTime(
            kernel=call.kernel,
            ops=(),
            template="",
            tile="",
            calls=count,
            seconds=seconds,
            flops=None,
            bytes=moved,
            roofline=None,
            bound="",
        )
    floor = limits.floor(info.flops, Stream(weights, weight_bytes), Stream(others, weights + others))
    return KernelTime(
        kernel=call.kernel, ops=info.ops, template=info.template, tile=info.tile, calls=count, seconds=seconds,
        flops=info.flops * count, bytes=moved, roofline=floor.seconds * count / seconds, bound=floor.bound,
    )  # fmt: skip
