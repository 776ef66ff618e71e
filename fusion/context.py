"""The resolved settings of one compilation: made once, in `compile`, and passed down unchanged.

No later stage asks the machine or the environment again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import tvm

from backends.backend import (
    Backend,
    DeviceLibrary,
    GraphLibrary,
    KernelCompiler,
    Library,
    ObjectWriter,
    RegionLibrary,
    VersionedLibrary,
)
from backends.registry import backend_for, kinds, libraries, library, others
from fusion.apart import import_apart
from fusion.cache import DiskCache, find_place
from fusion.errors import NotInstalledError, OptionError, TargetError
from fusion.options import (
    BF16_OR_FP32,
    FALLBACK,
    FAST,
    GENERATOR,
    ROUNDED,
    check_backends,
    check_effort,
    check_flag,
    check_precision,
    check_threads,
)
from fusion.system.cpus import default_threads
from fusion.system.deadline import Deadline
from placement.cover.places import Places, PlacesByOrder
from tuning.database import RecordStore, default_database, named_database, try_digest
from tuning.machine_model import MachineModel
from tuning.model_store import find_model


@dataclass(frozen=True)
class Context:
    """The settings of one compilation.

    Attributes:
        compiler: The compiler of kernels, bound to the target and the number of threads.
        strict: Whether an operator that needs ONNX Runtime is an error.
        to_fall_back: What a user is told to do then, so that it runs there; of no other use.
        precision: "bf16" if matmuls and convolutions may round their operands to bfloat16, "tf32" if they may round
            float32 operands to tfloat32 (10 bits behind the point), "fp32" otherwise.
        effort: "fast", "balanced" or "max"; the last two measure kernels on this machine.
        cache: The cache of compiled forms; None if they are not cached, as with a `Library` without a version.
        libraries: Libraries without a version, by name, which are offered the graph first, in this order.
        graph_libraries: All other libraries, by name, in this order; they may run regions of the graph.
        places: The placement: which of `graph_libraries`, numbered from 1, runs what.
        skipped: Backends that were asked for but cannot be used, a sentence each.
        database: The measurements of earlier compilations; None if they are not to be read.
        measured: A digest of the database, if one was named.
        model: The learned cost model of this machine; None if there is none.
        writer: Begins to compile each kernel once it is scheduled; None if none is compiled before all are scheduled.
        deadline: The end of all measuring.
        libraries_only: Whether libraries have to run all operators, as "cpu" was not named.
        opens_sizes: Whether this form is one of several from which that for all sizes is derived. Values that follow
            from sizes then stay formulas; as constants they would become tables.
    """

    compiler: KernelCompiler
    strict: bool = False
    to_fall_back: str = ""
    precision: str = "fp32"
    effort: str = FAST
    cache: DiskCache | None = None
    libraries: Mapping[str, Library] = field(default_factory=dict)
    graph_libraries: Mapping[str, RegionLibrary] = field(default_factory=dict)
    places: Places = field(default_factory=PlacesByOrder)
    skipped: tuple[str, ...] = ()
    database: RecordStore | None = None
    measured: str = ""
    model: MachineModel | None = None
    writer: ObjectWriter | None = None
    deadline: Deadline = field(default_factory=Deadline)
    libraries_only: bool = False
    opens_sizes: bool = False

    @property
    def target(self) -> tvm.target.Target:
        """The target, with all fields filled in."""
        return self.compiler.target

    @property
    def threads(self) -> int:
        """Worker threads at run time."""
        return self.compiler.threads

    def without_graph_libraries(self, why: str) -> Context:
        """Return the context without libraries of regions; `explain()` says why."""
        skipped = (f"{name} runs no region: {why}" for name in self.graph_libraries)
        return replace(self, graph_libraries={}, skipped=(*self.skipped, *skipped))

    def without_libraries(self, why: str) -> Context:
        """Return the context without any library; `explain()` says why."""
        ours = self.without_graph_libraries(why)
        skipped = (f"{name} runs nothing: {why}" for name in self.libraries)
        return replace(ours, libraries={}, skipped=(*ours.skipped, *skipped))


def resolve(
    target: str | tvm.target.Target = "llvm",
    *,
    threads: int | None = None,
    effort: str = FAST,
    strict: bool = False,
    backends: Sequence[str] | None = None,
    precision: str = "fp32",
    cache: bool = False,
    database: Any = None,
) -> Context:
    """Return the context of a compilation. The arguments are those of `fusion.compile`.

    Raises:
        TargetError: The target is unknown, there is no such machine, or it lacks the instructions of
            `precision`.
        OptionError: `effort`, `threads`, `backends`, `precision`, `cache`, `database` or a variable of the cache has a
            value that is not allowed, or the effort is to measure kernels and the target is another machine than this.
    """
    check_effort(effort)
    check_backends(backends, () if backends is None else libraries())
    check_threads(threads)
    check_flag("strict", strict)
    check_flag("cache", cache)
    fields = _fields_of(target)
    compiler = _backend_for(str(fields["kind"])).compiler(fields, int(threads or default_threads()))
    libraries_only = backends is not None and GENERATOR not in backends
    falls_back = backends is None or FALLBACK in backends
    if libraries_only and compiler.device:
        raise OptionError(
            f"backends={list(backends or ())} leaves out {GENERATOR!r}",
            why=f"no library runs whole models on {compiler.device}, and the kernels between are our own",
            hint=f"name {GENERATOR!r} too, which is our own kernels for any target",
        )
    foreign = compiler.foreign()
    if effort != FAST and foreign:
        there = "" if compiler.device else ", or compile on a machine of that kind"  # no machine measures a device's
        raise OptionError(
            f"effort={effort!r} measures kernels, and the target is not this machine's CPU",
            why=foreign,
            hint=f'use effort="fast", which chooses kernels by estimates{there}',
        )
    asked = _find_libraries(backends or (), compiler)
    given = named_database(database)
    named = None if foreign else given  # no measurements of another machine are made here
    by_default = database is None and effort != FAST
    learns = not foreign and database is not False
    resolved = _resolve_precision(precision, compiler)
    compiler = compiler.at_precision(resolved).with_libraries(asked.of_device)
    measured = try_digest(named)
    cached = cache and not asked.matching and not asked.of_device and measured is not None
    return Context(
        compiler,
        # On a device, nothing runs operators without kernels.
        strict=bool(strict) or bool(compiler.device) or not falls_back,
        to_fall_back=_to_fall_back(bool(strict), falls_back, compiler),
        precision=resolved,
        effort=effort,
        cache=find_place() if cached else None,
        libraries=asked.matching,
        graph_libraries=asked.graphs,
        places=PlacesByOrder(asked.preferred),
        skipped=asked.skipped,
        database=default_database() if by_default else named,
        measured=measured or "",
        libraries_only=libraries_only,
        model=find_model(named, compiler) if learns else None,
    )


def _to_fall_back(strict: bool, named: bool, compiler: KernelCompiler) -> str:
    """Return what lets ONNX Runtime run what needs it, where it may not; `named` says whether it is among backends."""
    if compiler.device:
        return 'compile the model with target="llvm"'
    steps = ["compile with strict=False"] * strict + [f"name {FALLBACK!r} in backends= too"] * (not named)
    return f"{' and '.join(steps)}, to run them on ONNX Runtime" if steps else ""


def _backend_for(kind: str) -> Backend:
    """Return the backend for targets of `kind`. One of another package is first imported in another process.

    Raises:
        TargetError: There is none.
    """
    importable, broken = list[str](), list[str]()
    for name in () if kind in kinds() else others():
        try:
            import_apart(name)
        except NotInstalledError as error:
            broken.append(f"{error.what}: {error.why}")
        else:
            importable.append(name)
    try:
        return backend_for(kind, importable)
    except TargetError as error:
        raise TargetError(error.what, why="; ".join(broken), hint=error.hint) from None


@dataclass(frozen=True)
class _Asked:
    """The libraries that a compilation uses.

    Attributes:
        matching: Those with patterns and without a version that are named before "cpu".
        graphs: Those that run regions, and those with patterns and a version.
        preferred: The numbers, from 1, of those in `graphs` that are named before "cpu".
        of_device: The names of those that run single kernels on the target's device and are named before "cpu".
        skipped: Those that cannot be used, a sentence each.
    """

    matching: Mapping[str, Library]
    graphs: Mapping[str, RegionLibrary]
    preferred: tuple[int, ...]
    of_device: tuple[str, ...]
    skipped: tuple[str, ...]


def _find_libraries(names: Sequence[str], compiler: KernelCompiler) -> _Asked:
    """Return the libraries of these names. ONNX Runtime after "cpu" is only the fallback, and not among them."""
    names = list(names)
    matching: dict[str, Library] = {}
    graphs: dict[str, RegionLibrary] = {}
    skipped, of_device = list[str](), list[str]()
    before = names[: names.index(GENERATOR)] if GENERATOR in names else names
    for name in names:
        if name == GENERATOR or (name == FALLBACK and name not in before):
            continue
        try:
            import_apart(name)
            each = library(name)
        except NotInstalledError as error:
            skipped.append(f"{error.what} and runs nothing{f': {error.why}' if error.why else ''}; {error.hint}")
            continue
        reason = _why_not_there(each, compiler)
        if reason:
            skipped.append(f"{name} runs nothing: {reason}")
        elif isinstance(each, DeviceLibrary) and name in before:
            of_device.append(name)
        elif isinstance(each, (GraphLibrary, VersionedLibrary)):
            graphs[name] = each
        elif isinstance(each, Library) and name in before:
            matching[name] = each
        else:
            skipped.append(f"{name} runs nothing: it is named behind {GENERATOR}, and not measured")
    preferred = tuple(place for place, name in enumerate(graphs, 1) if name in before)
    return _Asked(matching, graphs, preferred, tuple(of_device), tuple(skipped))


def _why_not_there(found: Library | GraphLibrary | DeviceLibrary, compiler: KernelCompiler) -> str:
    """Return why a library cannot be used for the target; "" if it can."""
    if isinstance(found, DeviceLibrary):
        kinds = " and ".join(found.kinds)
        return "" if compiler.target.kind.name in found.kinds else f"it is for targets of the kind {kinds}"
    return f"its code is for CPUs, and the target is {compiler.device}" if compiler.device else ""


def _resolve_precision(precision: str, compiler: KernelCompiler) -> str:
    """Return "fp32", "bf16" or "tf32"."""
    check_precision(precision)
    wanted, _, otherwise = precision.partition("-or-")
    lacking = compiler.why_not_precision(wanted)
    if not lacking or otherwise:
        return otherwise if lacking else wanted
    instead = f'"{BF16_OR_FP32}" for float32 on such a CPU' if wanted == "bf16" else '"fp32"'
    raise TargetError(
        f'the target has no instruction for {ROUNDED[wanted]}, which precision="{wanted}" needs',
        why=lacking,
        hint=f"use precision={instead}",
    )


def _fields_of(target: str | tvm.target.Target) -> dict[str, object]:
    if isinstance(target, tvm.target.Target):
        return dict(target.export())
    if isinstance(target, str):
        return _parse_target(target)
    raise TargetError(f"a target is a string or a tvm.target.Target, not {type(target).__name__}")


def _parse_target(text: str) -> dict[str, object]:
    kind, *options = text.split() or [""]
    if ":" in kind:
        hint = f"write it as a list, which may name several: target=[{kind!r}]"
        raise TargetError(f"{kind!r} names a device, and no target", hint=hint)
    fields: dict[str, object] = {"kind": kind}
    for option in options:
        name, separator, value = option.lstrip("-").partition("=")
        if not option.startswith("-") or not separator:
            raise TargetError(f"cannot read {option!r} in the target {text!r}", hint='write options as "-name=value"')
        if name in fields:
            raise TargetError(
                f"the target {text!r} has {name!r} more than once", hint="write several values behind commas"
            )
        fields[name] = value.split(",") if name == "mattr" else value
    return fields
