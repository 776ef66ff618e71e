"""Machine code of kernels as ELF object files, written by threads from when each kernel has its loops.

TVM's passes and LLVM run outside of Python's lock: on two cores PP-OCR's classifier takes 2.5 s, in one thread 4.7.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import GlobalVar
from tvm_ffi.structural import StructuralMutator

from backends.backend import ObjectCache
from backends.cpu.codegen.functions import apart, generate_finished, is_finished
from backends.cpu.codegen.generate import generate_module
from fusion.stages import part_of, stage
from fusion.structural import find, mutate
from fusion.system.abandon import checkpoint
from fusion.system.map_in_threads import ThreadedCalls

_CALLS = ("tirx.tvm_call_cpacked", "tirx.anylist_setitem_call_cpacked")
_SYMBOL = "__tvm_ffi_"
"""What TVM puts before the name of a function to get its symbol."""

_MACHINE = "__vmtir__"
"""How the names of the functions begin that TVM makes of Relax functions."""


@contextmanager
def object_files(target: tvm.target.Target, folder: Path, kept: ObjectCache | None) -> Iterator[ObjectFiles]:
    """Give what writes to `folder` while the block lasts; kernels that are `kept` have their code already."""
    with ThreadedCalls() as calls:
        yield ObjectFiles(target, calls, folder, kept)


@dataclass(frozen=True)
class _Written:
    """A function whose code is written.

    Attributes:
        call: Returns the file once it is done.
        functions: The names of those that it calls, whose code is in files of their own.
    """

    func: tirx.PrimFunc
    call: Future[Path]
    functions: tuple[str, ...]


@dataclass
class ObjectFiles:
    """An `ObjectWriter`.

    Attributes:
        calls: Write the files.
        folder: Where they are.
        kept: Those of kernels that were compiled before.
    """

    target: tvm.target.Target
    calls: ThreadedCalls
    folder: Path
    kept: ObjectCache | None
    _begun: dict[str, _Written] = field(default_factory=dict, init=False)
    _functions: dict[str, Future[Path]] = field(default_factory=dict, init=False)
    _numbers: count[int] = field(default_factory=count, init=False)

    def __post_init__(self) -> None:
        self._check = checkpoint()

    def begin(self, name: str, kernel: tirx.PrimFunc) -> None:
        """See `ObjectWriter`."""
        named, earlier = kernel.with_attr("global_symbol", name), self._begun.get(name)
        if earlier is not None:  # of a form in whose place another is made
            if tvm_ffi.structural_equal(earlier.func, named):
                return
            earlier.call.cancel()
        self._begun[name] = self._write(GlobalVar(name), named)

    def finish(self, mod: tvm.IRModule) -> list[Path]:
        """See `ObjectWriter`."""
        called, script = call_across_objects(mod)
        begun, self._begun = self._begun, {}
        needed = []
        for symbol, func in called.items():
            written = begun.pop(symbol.name_hint, None)
            if written is not None and not tvm_ffi.structural_equal(written.func, func):
                written.call.cancel()
                written = None
            needed.append(written or self._write(symbol, func))
        for other in begun.values():
            other.call.cancel()
        aliases = self.folder / "aliases.o"
        aliases.write_text(script)
        functions = sorted({name for written in needed for name in written.functions})
        calls = [*(written.call for written in needed), *(self._functions[name] for name in functions)]
        paths = self.calls.results(calls)
        if self.kept:
            self.kept.make_room()
        return [*paths, aliases]

    def _write(self, symbol: GlobalVar, func: tirx.PrimFunc) -> _Written:
        """Have the code of a function written, and that of those it calls, unless it is already."""
        alone, functions = apart(func)
        call = self._call(symbol, alone)
        for name, function in functions.items():
            if name not in self._functions:
                self._functions[name] = self._call(GlobalVar(name), function)
        return _Written(func, call, tuple(functions))

    def _call(self, symbol: GlobalVar, func: tirx.PrimFunc) -> Future[Path]:
        path = self.folder / f"{next(self._numbers)}.o"
        return self.calls.add(partial(self._code_at, symbol, func, path), length=_length(func))

    @part_of("machine code")
    def _code_at(self, symbol: GlobalVar, func: tirx.PrimFunc, path: Path) -> Path:
        """Return `path`, with the code of a function."""
        self._check()
        key = self.kept.key(symbol, func) if self.kept else None
        code = self.kept.find(key) if self.kept and key else None
        if code is not None:
            path.write_bytes(code)
            return path
        with self.target:  # threads have no target but their own
            if is_finished(func):
                made = generate_finished(func, self.target, path.with_suffix(".ll"))
            else:
                made = generate_module(tvm.IRModule({symbol: func}), self.target)
        with stage("LLVM"):
            made.write_to_file(str(path))
        if self.kept and key:
            self.kept.keep(key, path.read_bytes())
        return path


def _length(func: tirx.PrimFunc) -> int:
    """Return how many statements a function has: 0.87 of what its code takes goes with them (60 kernels of MiniLM and
    PP-OCR). Of what waits the longest is begun first: MiniLM's attention alone took a fifth of all, and was the last.
    """
    return len(find(func.body, (tirx.BufferStore, tirx.Evaluate)))


def call_across_objects(mod: tvm.IRModule) -> tuple[dict[GlobalVar, tirx.PrimFunc], str]:
    """Return the functions of `mod`, of which `main` may call kernels in other object files, and a linker script.

    TVM declares what is in another object at each call anew, so that each call needs a name of its own; the script
    says which kernel it stands for.
    """
    aliases: list[str] = []

    def rename(call: tvm.ir.Call, mutator: StructuralMutator) -> tvm.ir.Call:
        if not isinstance(call.op, tvm.ir.Op) or str(call.op.name) not in _CALLS:
            return mutator.default_mutate(call)
        at = next(index for index, argument in enumerate(call.args) if isinstance(argument, tvm.ir.StringImm))
        kernel = str(call.args[at].value)
        name = f"call_{len(aliases)}_{kernel}"
        aliases.append(f'"{name}" = "{_SYMBOL}{kernel}";\n')
        arguments = [*call.args[:at], tvm.ir.StringImm(name), *call.args[at + 1 :]]
        return tvm.ir.Call(call.op, arguments, ret_ty=call.ty)

    functions = dict(mod.functions.items())
    for symbol, func in mod.functions.items():
        if symbol.name_hint.startswith(_MACHINE):
            functions[symbol] = func.with_body(mutate(func.body, [(tvm.ir.Call, rename)]))
    return functions, "".join(aliases)
