"""The CPU that a target names, and whether it is this machine's."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

import tvm
import tvm_ffi
from tvm.target import codegen

from backends.host_features import differing_features
from fusion.errors import TargetError


def resolve_target(fields: Mapping[str, object]) -> tvm.target.Target:
    """Return the target of these fields, with the CPU of this machine where they name none.

    Raises:
        TargetError: LLVM knows no such CPU or system, or fusion does not compile for it.
    """
    known = dict(fields)
    # TVM writes this machine's triple into each of its targets that names no CPU.
    if not known.get("mcpu") and known.get("mtriple") in (None, "", host_triple()):
        known["mcpu"] = host_cpu()
        given = known.get("mattr")
        here = tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
        # An empty list makes another target than none, whose records servers alike write.
        if features := [*differing_features(host_cpu(), here), *(given if isinstance(given, Sequence) else ())]:
            known["mattr"] = features
    _check_names(str(known.get("mtriple") or ""), str(known.get("mcpu") or ""))
    try:
        return tvm.target.Target({key: value for key, value in known.items() if key not in ("tag", "keys")})
    except Exception as error:
        raise TargetError(f"TVM does not accept the target {known!r}", why=str(error).splitlines()[-1]) from error


def _check_names(triple: str, cpu: str) -> None:
    """Refuse names that LLVM does not know, of which TVM only warns, once for each kernel."""
    # With an unknown triple, the list of CPUs ends the process.
    if triple and not codegen.llvm_is_valid_cpu("generic", triple):
        raise TargetError(f"LLVM knows no target {triple!r}", hint="leave -mtriple out for this machine")
    # Kernels are linked and loaded as ELF files; of other systems' only this machine's own are known to work.
    if triple and "linux" not in triple and triple != host_triple():
        raise TargetError(
            f"fusion does not compile for {triple}",
            why="of other systems it knows only Linux",
            hint="leave -mtriple out for this machine, or use one such as aarch64-linux-gnu",
        )
    machine = {"mtriple": triple} if triple else {}
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(tvm.target.Target({"kind": "llvm", **machine}))]
    if cpu and cpu not in known:
        near = difflib.get_close_matches(cpu, known)
        raise TargetError(
            f"LLVM knows no CPU {cpu!r} of {triple or host_triple()}",
            hint=f"{'did you mean ' + ', '.join(near) + '? ' if near else ''}leave -mcpu out for this machine",
        )


def architecture_of(target: tvm.target.Target) -> str:
    """Return the first part of its triple, such as "x86_64"."""
    return (str(target.attrs.get("mtriple", "")) or host_triple()).partition("-")[0]


def foreign(target: tvm.target.Target) -> str:
    """Return what `target` and this machine are where they differ; "" where they do not."""
    if is_host(target):
        return ""
    named = f"{target.attrs.get('mcpu', '')} {target.attrs.get('mtriple', '')}".rstrip()
    return f"the target is {named}, this machine {host_cpu()} {host_triple()}"


def is_host(target: tvm.target.Target) -> bool:
    """Return whether `target` names this machine's CPU."""
    same = architecture_of(target) == host_triple().partition("-")[0]
    return same and str(target.attrs.get("mcpu", "")) == host_cpu()


def host_cpu() -> str:
    """Return LLVM's name of this machine's CPU."""
    return str(tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUName")())


def host_triple() -> str:
    """Return LLVM's name of this machine's system."""
    return str(codegen.llvm_get_system_triple())
