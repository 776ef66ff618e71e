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

from fusion.cpus import allowed_cpus
from fusion.errors import OptionError, TargetError

EFFORTS = ("fast",)
# These measure candidates, which fusion cannot do yet.
_EFFORTS_TO_COME = ("balanced", "max")
GENERATOR, FALLBACK = "cpu", "onnxruntime"
BACKENDS = (GENERATOR, FALLBACK)
# More than any machine has CPUs for one process; a pool of ten thousand threads fails when it starts.
_MOST_THREADS = 1024


@dataclass(frozen=True)
class Machine:
    """What code generation must know of a CPU.

    Attributes:
        vector_lanes: float32 lanes of the widest vector register.
        vector_registers: How many such registers there are.
        l1_bytes, l2_bytes, l3_bytes: Data-cache sizes in bytes; L1 and L2 per core, L3 shared.
    """

    vector_lanes: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int


@dataclass(frozen=True)
class Context:
    """One compilation: where the code runs and what is allowed.

    Attributes:
        target: TVM target with `mcpu` filled in.
        machine: The CPU that the target names.
        features: LLVM's names of the CPU features the generated code may use.
        threads: Worker threads at run time.
        strict: Whether an operator that needs the fallback backend is an error.
    """

    target: tvm.target.Target
    machine: Machine
    features: frozenset[str]
    threads: int
    strict: bool = False


def resolve(
    target: str | tvm.target.Target = "llvm",
    *,
    threads: int | None = None,
    effort: str = "fast",
    strict: bool = False,
    backends: Sequence[str] | None = None,
) -> Context:
    """Return the frozen context for a compilation.

    Raises:
        TargetError: The target is unknown, or LLVM knows no such CPU.
        OptionError: `effort`, `threads` or `backends` has a value that is not allowed.
    """
    _check_effort(effort)
    _check_backends(backends)
    check_threads(threads)
    resolved = _resolve_target(target)
    features = _features(resolved)
    return Context(
        target=resolved,
        machine=_machine(features),
        features=features,
        threads=threads or allowed_cpus(),
        strict=strict or (backends is not None and FALLBACK not in backends),
    )


def host_features() -> frozenset[str]:
    """Return LLVM's names of the features of the CPU this process runs on."""
    found = tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUFeatures")()
    return frozenset(str(name) for name, on in found.items() if int(on))


def check_threads(threads: int | None) -> None:
    """Raise unless `threads` is a number of worker threads, or None.

    Raises:
        OptionError: It is not.
    """
    if threads is not None and not (isinstance(threads, int) and 1 <= threads <= _MOST_THREADS):
        raise OptionError(
            f"threads={threads} is not a number of threads",
            hint=f"use 1 to {_MOST_THREADS}, or leave it out for all CPUs this process may use",
        )


def _check_effort(effort: str) -> None:
    if effort in _EFFORTS_TO_COME:
        raise OptionError(
            f"effort={effort!r} is not available yet",
            why="fusion chooses kernels by its cost tables and does not measure them",
            hint='use effort="fast"',
        )
    if effort not in EFFORTS:
        raise OptionError(f"unknown effort {effort!r}", hint=f"use one of {', '.join(EFFORTS)}")


def _check_backends(backends: Sequence[str] | None) -> None:
    unknown = [name for name in backends or () if name not in BACKENDS]
    if unknown or isinstance(backends, str):
        raise OptionError(f"backends={backends!r} names no backend", hint=f"give a list of {', '.join(BACKENDS)}")
    if backends is not None and GENERATOR not in backends:
        raise OptionError(
            f"backends={list(backends)} leaves out {GENERATOR!r}",
            why=f"{FALLBACK} runs only what {GENERATOR} cannot",
            hint="None allows all backends",
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
        fields["mcpu"] = str(tvm_ffi.get_global_func("tvm.codegen.llvm.GetHostCPUName")())
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
    machine = {"mtriple": triple} if triple else {}
    known = [str(name) for name in codegen.llvm_get_cpu_archlist(tvm.target.Target({"kind": "llvm", **machine}))]
    if cpu and cpu not in known:
        near = difflib.get_close_matches(cpu, known)
        raise TargetError(
            f"LLVM knows no CPU {cpu!r} of {triple or codegen.llvm_get_system_triple()}",
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
    with target:
        found = tvm_ffi.get_global_func("target.llvm_get_cpu_features")(target)
    return frozenset(str(name) for name in found)


def _machine(features: frozenset[str]) -> Machine:
    lanes, registers = next(row for feature, *row in _VECTOR_UNITS if feature in features or not feature)
    l1, l2, l3 = (_cache_bytes(level, default) for level, default in _CACHE_DEFAULTS)
    return Machine(lanes, registers, l1, l2, l3)


# (LLVM feature, float32 lanes, registers): the first whose feature the CPU has. Intel SDM vol. 1 ch. 14-15, Arm ARM
# A1.4.
_VECTOR_UNITS = (("avx512f", 16, 32), ("avx2", 8, 16), ("avx", 8, 16), ("neon", 4, 32), ("", 4, 16))
# sysfs index and the size assumed where the kernel tells none: the smallest of current server cores.
_CACHE_DEFAULTS = ((0, 32 << 10), (2, 1 << 20), (3, 16 << 20))
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def _cache_bytes(index: int, default: int) -> int:
    try:
        text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text().strip()
    except OSError:
        return default
    return int(text[:-1]) * _UNITS[text[-1]] if text and text[-1] in _UNITS else default
