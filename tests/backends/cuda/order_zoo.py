"""`python -m tests.backends.cuda.order_zoo [MODEL ...]`: which kernels of a model wait for which in its graph.

Compiles models of the zoo for sm_80, loads their plans without a device, and looks at all pairs of kernels that touch a
byte in common which one of them writes: one has to be behind the other. Says how many kernels and edges there are, how
long the longest path is, and how many pairs have no order. NVRTC is not needed. Ends with 1 where two kernels that need
an order have none.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import fusion
from backends.cuda.codegen import device_code
from backends.cuda.codegen.nvrtc import Assembled
from backends.cuda.runtime import kernels
from backends.cuda.runtime.code_file import CodeFile
from backends.cuda.runtime.kernels import LoadedKernels
from backends.cuda.runtime.layout import ALIGNMENT, MemoryLayout
from backends.device_run import DevicePlace, DeviceRun
from bench import zoo
from fusion import CompiledModule
from fusion.module.offload_program import device_run
from fusion.tensors import byte_view, tensor_bytes
from tests.backends.cuda.emulate_zoo import branching, with_constants


@dataclass(frozen=True)
class Bytes:
    """A range of the memory of a module that a kernel touches."""

    begin: int
    end: int
    is_written: bool

    def meets(self, other: Bytes) -> bool:
        """Return whether an order is needed: some bytes are the same, and one of the two writes them."""
        return self.begin < other.end and other.begin < self.end and (self.is_written or other.is_written)


@dataclass(frozen=True)
class Planned:
    """The launches of a module, one after another.

    Attributes:
        touched: By launch the bytes that it touches.
        waits: By launch the earlier ones that its node of the graph waits for.
    """

    touched: tuple[tuple[Bytes, ...], ...]
    waits: tuple[tuple[int, ...], ...]

    def unordered(self) -> Iterator[tuple[int, int]]:
        """Yield the pairs of launches of which none waits for the other, neither itself nor through others."""
        behind = list[set[int]]()
        for number, waits in enumerate(self.waits):
            behind.append(set(waits).union(*(behind[each] for each in waits)))
            yield from ((other, number) for other in range(number) if other not in behind[number])

    def wrong(self) -> Iterator[tuple[int, int]]:
        """Yield those of them that need an order."""
        for one, other in self.unordered():
            if any(each.meets(there) for each in self.touched[one] for there in self.touched[other]):
                yield one, other

    def depth(self) -> int:
        """Return how many launches the longest path has, each of which waits for the one before it."""
        ends = list[int]()
        for waits in self.waits:
            ends.append(1 + max((ends[each] for each in waits), default=0))
        return max(ends, default=0)

    def needed(self) -> int:
        """Return how many of the edges a tensor in common needs; all do, if none is too many."""
        return sum(
            any(each.meets(there) for each in self.touched[one] for there in self.touched[other])
            for other, waits in enumerate(self.waits)
            for one in waits
        )


def planned(module: CompiledModule) -> Planned:
    """Return the launches of a module that was compiled for a device, as they are loaded."""
    (form,) = module.specializations
    code = form.code
    assert code is not None
    run = device_run(code.plan, form.inputs)
    loaded = _load(code.library(), run)
    layout = MemoryLayout(run, [(spec.extents, spec.dtype) for spec in run.inputs], code.weights, loaded)
    begins = loaded.addresses(layout.offsets)
    ends = [begin + _size(place, run, code.weights, loaded) for place, begin in zip(loaded.places, begins, strict=True)]
    touched = []
    for launch in loaded.launches:
        reads, writes = launch.touched.reads, launch.touched.writes
        used = [at for at in range(len(begins)) if at in reads | writes]
        touched.append(tuple(Bytes(begins[at], ends[at], at in writes) for at in used))
    return Planned(tuple(touched), loaded.order.waits)


def _size(place: DevicePlace, run: DeviceRun, weights: Sequence[Any], loaded: LoadedKernels) -> int:
    if place.kind == "input":
        return tensor_bytes(run.inputs[place.index].extents, run.inputs[place.index].dtype)
    if place.kind == "weight":
        return byte_view(weights[place.index]).nbytes
    if place.kind == kernels.WORKSPACE:
        return len(loaded.workspaces[place])
    return (run.storages if place.kind == "storage" else run.results)[place.index]


def _load(code: bytes, run: DeviceRun) -> LoadedKernels:
    """Return the launches of a plan for a device that is not there, to which nothing is loaded."""
    device: Any = SimpleNamespace(
        found=SimpleNamespace(block_shared_bytes=227 << 10, capability=(8, 0)),
        current=contextlib.nullcontext,
        call=lambda *given: None,
    )
    nothing = SimpleNamespace(function=lambda symbol: 0)
    loading = mock.patch.object(kernels, "CodeModule", return_value=nothing)
    with loading, mock.patch.object(CodeFile, "code", return_value=b""):
        return LoadedKernels(device, CodeFile(code), run, ALIGNMENT)


def compiled(path: Path, **options: Any) -> CompiledModule:
    """Return a model as it is compiled for sm_80, without machine code."""
    with mock.patch.object(device_code, "assemble", return_value=Assembled(b"", b"")):
        return fusion.compile(path, "cuda -arch=sm_80", cache=False, **options)


def _look_at(name: str) -> bool:
    """Print what the graph of one model is; return whether all is in order that has to be."""
    model = zoo.make(name)
    constants = branching(model)
    shapes = {name: shape for name, shape in model.shapes.items() if name not in constants}
    with tempfile.TemporaryDirectory() as folder:
        path = with_constants(model.path, constants, Path(folder)) if constants else model.path
        found = planned(compiled(path, shapes=shapes))
    many, edges = len(found.waits), sum(map(len, found.waits))
    wrong = list(found.wrong())
    print(
        f"{name}: {many} kernels, {edges} edges, of which {found.needed()} are needed; the longest path has"
        f" {found.depth()}; {len(list(found.unordered()))} pairs without an order, {len(wrong)} of them wrong",
        flush=True,
    )
    return not wrong


def main() -> int:
    """Return 0 if all kernels that need an order have one."""
    parser = argparse.ArgumentParser(prog="python -m tests.backends.cuda.order_zoo", description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of any set of the zoo (default: the first)")
    options = parser.parse_args()
    return 0 if all([_look_at(name) for name in options.models or zoo.names()]) else 1


if __name__ == "__main__":
    sys.exit(main())
