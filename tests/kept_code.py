"""Machine code that the tests of one process share, as many compile the same small models.

TVM's last passes and LLVM take half of a compilation. They make the same code of equal functions, and all that comes
before, the loops of each kernel included, each test still does itself.

LLVM optimises kernels, as for users, but not the functions that call them: these compute sizes at most, and took 19% of
the CPU time of ONNX's node tests, without it 5%.

What they make is linked by `ld` where the machine has it: `cc` looks for the C library and for its own start files,
which no model needs, and takes 20 ms of CPU time, `ld` alone 5.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import tvm
import tvm_ffi
from tvm import tirx

from backends.cpu.codegen import objects
from fusion.context import Context
from fusion.module import linker, write_objects
from fusion.module.kernel_cache import KernelCache
from fusion.system.forks import Lock

_GENERATE = objects.generate_module
_CALLS_KERNELS = "__vmtir__"
"""How the names of functions begin that TVM makes of Relax functions."""
_MOST_BYTES = 96 << 20
"""Of all code: what has not been used for longest is dropped."""

Generate = Callable[[tvm.IRModule, tvm.target.Target], tvm.runtime.Module]


@dataclass(frozen=True)
class _Made:
    func: tirx.PrimFunc
    code: bytes


@dataclass
class SharedCode:
    """The code of functions by all that decides it: loops, name, target and the options of passes."""

    _made: OrderedDict[str, _Made] = field(default_factory=OrderedDict, init=False)
    _bytes: int = field(default=0, init=False)
    _lock: Lock = field(default_factory=Lock, init=False)

    def keep(self, key: str, func: tirx.PrimFunc, code: bytes) -> None:
        """Keep the code of a function, and drop other where that is too much."""
        with self._lock:
            if key in self._made:
                return
            self._made[key] = _Made(func, code)
            self._bytes += len(code)
            while self._bytes > _MOST_BYTES:
                self._bytes -= len(self._made.popitem(last=False)[1].code)

    def find(self, key: str, func: tirx.PrimFunc) -> bytes | None:
        """Return the code of a function that is equal to `func`."""
        with self._lock:
            made = self._made.get(key)
            if made is None or not tvm_ffi.structural_equal(made.func, func):
                return None
            self._made.move_to_end(key)
            return made.code


@dataclass
class KeptCode:
    """An `ObjectCache` for one compilation."""

    shared: SharedCode
    target: str
    generate: Generate
    _asked: dict[str, tirx.PrimFunc] = field(default_factory=dict, init=False)

    def key(self, symbol: tvm.ir.GlobalVar, func: tirx.PrimFunc) -> str | None:
        """See `ObjectCache`; `main` has one too, and nothing where a test has put another generator in the place."""
        if objects.generate_module is not self.generate:
            return None
        how = f"{self.target} {_quick.now} {tvm.transform.PassContext.current()}"
        key = f"{symbol.name_hint} {tvm_ffi.structural_hash(func)} {how}"
        self._asked[key] = func
        return key

    def find(self, key: str) -> bytes | None:
        """See `ObjectCache`."""
        return self.shared.find(key, self._asked[key])

    def keep(self, key: str, code: bytes) -> None:
        """See `ObjectCache`."""
        self.shared.keep(key, self._asked[key], code)

    def make_room(self) -> None:
        """See `ObjectCache`."""


@dataclass
class _Quick:
    """Whether LLVM leaves kernels as they are now."""

    now: bool = False


_quick = _Quick()


def generate_quickly(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Return what `generate_module` does; LLVM optimises no function that only calls kernels, and none while they are
    to be had quickly."""
    if _quick.now or all(symbol.name_hint.startswith(_CALLS_KERNELS) for symbol in mod.functions):
        target = unoptimised(target)
    return _GENERATE(mod, target)


def unoptimised(target: tvm.target.Target) -> tvm.target.Target:
    """Return `target` for LLVM to write instructions as they come; TVM's passes do as for `target`."""
    return tvm.target.Target({**target.export(), "opt-level": 0})


@contextmanager
def sharing_code() -> Iterator[None]:
    """Have the code of equal functions made once while the block lasts, where the cache on disk is off."""
    shared, open_kernels = SharedCode(), write_objects.open_kernels

    def open_some(ctx: Context) -> KernelCache | KeptCode:
        return open_kernels(ctx) or KeptCode(shared, str(ctx.compiler.target), generate_quickly)

    with (
        mock.patch.object(write_objects, "open_kernels", open_some),
        mock.patch.object(objects, "generate_module", generate_quickly),
        mock.patch.object(linker, "_LINKERS", ("ld", *linker._LINKERS)),
    ):
        yield


@contextmanager
def quick_kernels() -> Iterator[None]:
    """Have LLVM optimise no kernel while the block lasts, for tests of operators rather than of code."""
    with mock.patch.object(_quick, "now", True):
        yield
