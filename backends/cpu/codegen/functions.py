"""Functions in LLVM's own language that kernels call: in line, or as code of their own that several kernels share.

TVM links what a kernel imports into its code and puts it in line, whatever it is marked as. A PrimFunc of which
`MakePackedAPI` is told that it has its calling convention already keeps its parameters and is exported: around such a
function it is that function, compiled once for a model, in an object file of its own.

A finished function needs no PrimFunc: LLVM writes its code as the text has it, in 0.4 of the time. Its optimiser takes
as long again, as do the conversions of float16 that TVM puts into all modules it makes.
"""

from __future__ import annotations

import re
from pathlib import Path

import tvm
from tvm import tirx
from tvm.ir import Call, CallingConv
from tvm_ffi.structural import StructuralMutator

from backends.cpu.codegen.frames import with_line
from backends.cpu.costs import CACHE_LINE
from backends.cpu.llvm_level import target_for, with_level
from backends.tensorir.emit import FINISHED, FUNCTIONS, IMPORT, Nest
from backends.tensorir.schedule_kernels import SOURCE
from fusion.structural import contains, find, mutate

_EXTERN = "tirx.call_extern"
_KEYS = (FUNCTIONS, FINISHED)
_DEFINED = re.compile(r"^define i32 @([\w.]+)\([^)]*\)", re.MULTILINE)
_BEHIND_TEXT = "!1000000"
"""A number of metadata that no text has."""


def in_line(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with the functions it calls as a part of its code."""
    if not _has_functions(func):
        return func

    def attribute(found: tirx.AttrStmt, mutator: StructuralMutator) -> object:
        inner = mutator.default_mutate(found)
        if found.attr_key not in _KEYS:
            return inner
        return tirx.AttrStmt(inner.node, IMPORT, inner.value, inner.body)

    return func.with_body(mutate(func.body, [(tirx.AttrStmt, attribute)]))


def apart(func: tirx.PrimFunc) -> tuple[tirx.PrimFunc, dict[str, tirx.PrimFunc]]:
    """Return `func` without the functions it calls, and these by name, each to be compiled by itself."""
    if not _has_functions(func):
        return func, {}
    texts: list[tuple[str, str]] = []

    def attribute(found: tirx.AttrStmt, mutator: StructuralMutator) -> object:
        if found.attr_key not in _KEYS:
            return mutator.default_mutate(found)
        texts.append((str(found.attr_key), str(found.value.value)))
        return mutator.mutate(found.body)

    alone = func.with_body(mutate(func.body, [(tirx.AttrStmt, attribute)]))
    calls = {_called(call): call for call in find(alone.body, Call) if _is_extern(call)}
    return alone, {
        name: _finished(text) if key == FINISHED else _exported(calls[name], text)
        for key, text in texts
        for name in _DEFINED.findall(text)
        if name in calls
    }


def is_finished(func: tirx.PrimFunc) -> bool:
    """Return whether a function that `apart` returned is written as it is to run."""
    return bool(func.attrs) and FINISHED in func.attrs


def generate_finished(func: tirx.PrimFunc, target: tvm.target.Target, file: Path) -> tvm.runtime.Module:
    """Return the code of a function that is finished, whose text `file` is to hold.

    What `frames.align` does by an object is an attribute here.
    """
    empty = tvm.get_global_func("codegen.LLVMModuleCreate")(str(target_for(tvm.IRModule({"main": func}), target)), "")
    text = _DEFINED.sub(rf"\g<0> nounwind alignstack({CACHE_LINE}) align {CACHE_LINE}", str(func.attrs[FINISHED]))
    file.write_text(empty.inspect_source("ll").replace("!0", _BEHIND_TEXT) + text)
    return tvm.get_global_func("ffi.Module.load_from_file.ll")(str(file), "ll")


def _has_functions(func: tirx.PrimFunc) -> bool:
    return contains(func.body, (tirx.AttrStmt, lambda found: found.attr_key in _KEYS))


def _is_extern(call: Call) -> bool:
    return isinstance(call.op, tvm.ir.Op) and str(call.op.name) == _EXTERN


def _called(call: Call) -> str:
    name, *_ = call.args
    return str(name.value)


def _finished(text: str) -> tirx.PrimFunc:
    """Return what stands for the function that `text` defines."""
    func = tirx.PrimFunc([], tirx.Evaluate(0)).with_attr({FINISHED: text, SOURCE: text})
    return with_level(func, is_written_out=True)


def _exported(call: Call, text: str) -> tirx.PrimFunc:
    """Return the function that `call` is of, as `text` defines it."""
    name, (_, *arguments) = _called(call), call.args
    params = [tirx.Var(f"p{place}", argument.ty) for place, argument in enumerate(arguments)]
    inner, nest = f"{name}.in_line", Nest()
    nest.use_functions(text.replace(f"@{name}(", f"@{inner}("))
    nest.add(with_line(tirx.Evaluate(tirx.call_extern("int32", inner, *params))))
    func = tirx.PrimFunc(params, nest.finish())
    attributes = {"global_symbol": name, "calling_conv": CallingConv.DEVICE_KERNEL_LAUNCH, SOURCE: text}
    return with_level(func.with_attr(attributes), is_written_out=True)
