"""The resolved settings of one compilation, made once in `compile` and passed down unchanged.

A later stage never asks the machine or the environment again (design D10).
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
import tvm_ffi
from tvm.target import codegen

from fusion.cache import Place, find_place
from fusion.cpus import default_threads
from fusion.errors import OptionError, TargetError
from fusion.options import (
    BF16_OR_FP32,
    FALLBACK,
    FAST,
    check_backends,
    check_effort,
    check_flag,
    check_precision,
    check_threads,
)

_DOT_BFLOAT16 = "avx512bf16"


@dataclass(frozen=True)
class Machine:
    """What code generation must know of a CPU.

    Attributes:
        vector_lanes: float32 lanes of the widest vector register.
        vector_registers: How many such registers there are.
        l1_bytes, l2_bytes, l3_bytes: Data-cache sizes in bytes; L1 and L2 per core, L3 shared.
        dot_bfloat16: Whether it multiplies pairs of bfloat16 in one instruction, in vectors of float32's lanes.
    """

    vector_lanes: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    dot_bfloat16: bool = False


@dataclass(frozen=True)
class Context:
    """One compilation: where the code runs and what is allowed.

    Attributes:
        target: TVM target with `mcpu` filled in.
        machine: The CPU that the target names.
        features: LLVM's names of the CPU features the generated code may use.
        threads: Worker threads at run time.
        strict: Whether an operator that needs the fallback backend is an error.
        precision: "bf16" where matmuls and convolutions may round their operands to bfloat16, otherwise "fp32".
        effort: "balanced" where kernels are chosen by measuring them on this machine, otherwise "fast".
        cache: Where compiled forms are kept; None where they are not.
    """

    target: tvm.target.Target
    machine: Machine
    features: frozenset[str]
    threads: int
    strict: bool = False
    precision: str = "fp32"
    effort: str = FAST
    cache: Place | None = None


def resolve(
    target: str | tvm.target.Target = "llvm",
    *,
    threads: int | None = None,
    effort: str = FAST,
    strict: bool = False,
    backends: Sequence[str] | None = None,
    precision: str = "fp32",
    cache: bool = False,
) -> Context:
    """Return the frozen context for a compilation.

    Raises:
        TargetError: The target is unknown, LLVM knows no such CPU, or it lacks the instructions of `precision="bf16"`.
        OptionError: `effort`, `threads`, `backends`, `precision`, `cache` or a variable of the cache has a value that
            is not allowed, or the effort is to measure kernels and the target is another CPU than this machine's.
    """
    check_effort(effort)
    check_backends(backends)
    check_threads(threads)
    check_flag("strict", strict)
    check_flag("cache", cache)
    resolved = _resolve_target(target)
    if effort != FAST and not _is_host(resolved):
        raise OptionError(
            f"effort={effort!r} measures kernels, and the target is not this machine's CPU",
            why=f"the target is {resolved.attrs.get('mcpu', '')} {resolved.attrs.get('mtriple', '')}".rstrip()
            + f", this machine {_host_cpu()} {_host_triple()}",
            hint='use effort="fast", or compile on a machine of that kind',
        )
    features = _features(resolved)
    machine = _machine(resolved, features)
    return Context(
        target=resolved,
        machine=machine,
        features=features,
        threads=int(threads or default_threads()),
        strict=bool(strict) or (backends is not None and FALLBACK not in backends),
        precision=_resolve_precision(precision, machine),
        effort=effort,
        cache=find_place() if cache else None,
    )


def host_features() -> frozenset[str]:
    """Return LLVM's names of the features of the CPU this process runs on."""
    found = tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    return frozenset(str(name) for name, on in found.items() if int(on))


def _resolve_precision(precision: str, machine: Machine) -> str:
    """Return "fp32" or "bf16"."""
    check_precision(precision)
    if precision == "fp32" or machine.dot_bfloat16:
        return precision.partition("-")[0]
    if precision == BF16_OR_FP32:
        return "fp32"
    raise TargetError(
        "the CPU has no instruction for bfloat16, which precision=\"bf16\" needs",
        why=f"LLVM's feature {_DOT_BFLOAT16!r} is not among those of the target",
        hint=f'use precision="{BF16_OR_FP32}" for float32 on such a CPU',
    )


def _resolve_target(target: str | tvm.target.Target) -> tvm.target.Target:
    if isinstance(target, tvm.target.Target):
        fields = dict(target.export())
    elif isinstance(target, str):
        fields = _parse_target(target)
    else:
        raise TargetError(f"a target is a string or a tvm.target.Target, not {type(target).__name__}")
    if fields["kind"] != "llvm":
        raise TargetError(f"target kind {fields['kind']!r} is not available", hint='use "llvm" or "llvm -mcpu=NAME"')
    if not fields.get("mcpu") and not fields.get("mtriple"):
        fields["mcpu"] = _host_cpu()
    _check_names(str(fields.get("mtriple") or ""), str(fields.get("mcpu") or ""))
    try:
        return tvm.target.Target({key: value for key, value in fields.items() if key not in ("tag", "keys")})
    except Exception as error:
        raise TargetError(f"TVM does not accept the target {target!r}", why=str(error).splitlines()[-1]) from error


def _check_names(triple: str, cpu: str) -> None:
    """Refuse names that LLVM does not know, of which TVM only warns, once for each kernel."""
    # With an unknown triple, the list of CPUs ends the process.
    if triple and not codegen.llvm_is_valid_cpu("generic", triple):
        raise TargetError(f"LLVM knows no target {triple!r}", hint="leave -mtriple out for this machine")
    # Kernels are linked and loaded as ELF files; of other systems' only this machine's own are known to work.
    if triple and "linux" not in triple and triple != _host_triple():
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
            f"LLVM knows no CPU {cpu!r} of {triple or _host_triple()}",
            hint=f"{'did you mean ' + ', '.join(near) + '? ' if near else ''}leave -mcpu out for this machine",
        )


def _parse_target(text: str) -> dict[str, object]:
    kind, *options = text.split() or [""]
    fields: dict[str, object] = {"kind": kind}
    for option in options:
        name, separator, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not separator:
            raise TargetError(f"cannot read {option!r} in the target {text!r}", hint='write options as "-name=value"')
        fields[name] = value.split(",") if name == "mattr" else value
    return fields


def _features(target: tvm.target.Target) -> frozenset[str]:
    try:
        with target:
            found = tvm_ffi.get_global_func("target.llvm_get_cpu_features")(target)
    except Exception as error:  # LLVM checks some options only now
        raise TargetError("LLVM does not accept the target", why=str(error).splitlines()[-1][:300]) from error
    return frozenset(str(name) for name in found)


def _machine(target: tvm.target.Target, features: frozenset[str]) -> Machine:
    lanes, registers = next(row for feature, *row in _VECTOR_UNITS if feature in features or not feature)
    sizes = _CACHES.get(_architecture(target), _CACHES["x86_64"])
    if _is_host(target):
        sizes = [_cache_bytes(index, size) for index, size in zip(_CACHE_INDICES, sizes, strict=True)]
    l1, l2, l3 = sizes
    return Machine(lanes, registers, l1, l2, l3, _DOT_BFLOAT16 in features)


def _architecture(target: tvm.target.Target) -> str:
    return (str(target.attrs.get("mtriple", "")) or _host_triple()).partition("-")[0]


def _is_host(target: tvm.target.Target) -> bool:
    """Return whether `target` names this machine's CPU."""
    same = _architecture(target) == _host_triple().partition("-")[0]
    return same and str(target.attrs.get("mcpu", "")) == _host_cpu()


def _host_cpu() -> str:
    return str(tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUName")())


def _host_triple() -> str:
    return str(codegen.llvm_get_system_triple())


# (LLVM feature, float32 lanes, registers): the first whose feature the CPU has. Intel SDM vol. 1 ch. 14-15, Arm ARM
# A1.4. Vectors of SVE have no fixed length: its CPUs count as NEON's.
_VECTOR_UNITS = (("avx512f", 16, 32), ("avx2", 8, 16), ("avx", 8, 16), ("neon", 4, 32), ("", 4, 16))
# Bytes of L1, L2 and L3, for a CPU that is not this machine's, so that a target gives the same code wherever it is
# compiled, and where the kernel tells none. aarch64: a Cortex-A72 (TRM 100095), without L3; others: the smallest of
# current server cores.
_CACHES = {"x86_64": [32 << 10, 1 << 20, 16 << 20], "aarch64": [32 << 10, 1 << 20, 0]}
# In sysfs; 1 is that of instructions.
_CACHE_INDICES = (0, 2, 3)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _cache_bytes(index: int, default: int) -> int:
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text().strip()
    except OSError:
        return default
    return int(text[:-1]) * _UNITS[text[-1]] if text and text[-1] in _UNITS else default
