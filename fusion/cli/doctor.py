"""`fusion doctor`: whether this machine and its packages are fit to compile and run."""

from __future__ import annotations

import argparse
import importlib.metadata
import math
import platform
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import fusion
from fusion.cli.exit_codes import INTERNAL, OK
from fusion.cli.options import add_json, add_verb
from fusion.cli.output import show
from fusion.errors import FusionError, NotInstalledError
from fusion.system.cpus import allowed_cores, allowed_cpus, cpu_quota

if TYPE_CHECKING:
    from backends.device_run import DeviceFigures

_PINS = {"apache-tvm": "0.27.0.post1", "apache-tvm-ffi": "0.1.14.post1"}
"""Versions known to work together; newer ffi releases crash in `tvm.ir.save_json`."""
_PEERS = ("torch",)
"""Packages that `fusion bench` compares with, beside those of backends."""


@dataclass(frozen=True)
class Finding:
    """One line of the report; `good` is None where it only informs."""

    name: str
    value: str
    good: bool | None = None
    hint: str = ""


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "doctor", "", "check this machine, its packages, and that a tiny model compiles and runs")
    add_json(parser)
    parser.set_defaults(verb=doctor)


def doctor(options: argparse.Namespace) -> int:
    """Print the findings; 4 if the self-test fails."""
    findings = [
        Finding("python", platform.python_version()),
        *_packages(),
        *_machine(),
        *_devices(),
        *_backends(),
        _linker(),
        _pool(),
        _cache(),
        *_model(),
        *_peers(),
        _self_test(),
    ]
    data = {f.name: {"value": f.value, "good": f.good, "hint": f.hint if f.good is False else ""} for f in findings}
    show("\n".join(_line(finding) for finding in findings), data, options.json)
    return OK if findings[-1].good else INTERNAL


def _line(finding: Finding) -> str:
    mark = {True: "ok", False: "!!", None: "  "}[finding.good]
    hint = f" ({finding.hint})" if finding.hint and finding.good is False else ""
    return f"{mark}  {finding.name:<20}{finding.value}{hint}"


def _packages() -> list[Finding]:
    def check(name: str, pin: str) -> Finding:
        found = _version(name)
        return Finding(name, found or "missing", found == pin, f"known to work: pip install {name}=={pin}")

    return [check(name, pin) for name, pin in _PINS.items()]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _machine() -> list[Finding]:
    from fusion.runtime import import_compiler

    try:
        import_compiler()
    except NotInstalledError as error:
        return [Finding("compiler", "missing", False, error.hint)]
    from fusion import context

    ctx = context.resolve()
    return [
        *(Finding(name, value) for name, value in ctx.compiler.describe().items()),
        Finding("threads", f"{ctx.threads} ({_cpu_time()})"),
    ]


def _devices() -> list[Finding]:
    from backends.registry import device_runtimes

    runtimes = device_runtimes().values()
    return [
        *(Finding(name, text) for runtime in runtimes for name, text in runtime.describe().items()),
        *(Finding(f"figures {each.arch}", _figures(each)) for runtime in runtimes for each in runtime.figures()),
    ]


def _backends() -> list[Finding]:
    """Return a finding for each backend that is registered, by fusion or by other packages."""
    from backends.registry import generators, libraries
    from fusion.apart import asking_apart

    own = generators().items()
    with asking_apart():  # one process imports them all
        return [
            *(Finding(f"backend {name}", f"{fusion.__version__}, kernels for targets {kind!r}") for name, kind in own),
            *map(_backend, libraries()),
        ]


def _backend(name: str) -> Finding:
    """Return what is known of a backend without asking it for anything: another process imports it first."""
    from fusion.apart import import_apart

    title = f"backend {name}"
    try:
        import_apart(name)
        return Finding(title, _described(name), True)
    except NotInstalledError as error:
        state = error.what.removeprefix(f"the backend {name!r} ")
        if error.why:
            return Finding(title, f"{state}: {error.why}", False, error.hint)
        return Finding(title, f"{state}: {error.hint}")
    except Exception as error:  # whatever a package of somebody else raises
        return Finding(title, f"cannot be asked: {type(error).__name__}: {error}", False, "update its package")


def _described(name: str) -> str:
    """Return the version of a backend, and what it runs.

    Raises:
        NotInstalledError: It is not installed, cannot be imported, or is no backend.
    """
    from backends.backend import Backend, DeviceLibrary, GraphLibrary
    from backends.registry import library, other

    found = other(name)
    if isinstance(found, Backend):
        return f"kernels for targets {', '.join(map(repr, found.kinds))}"
    known = library(name)
    version = getattr(known, "version", "") or "no version, so that it is not measured"
    if isinstance(known, DeviceLibrary):
        return f"{version}, single kernels of targets {', '.join(map(repr, known.kinds))}"
    return f"{version}, {'regions' if isinstance(known, GraphLibrary) else 'what its patterns match'}"


def _figures(device: DeviceFigures) -> str:
    rates = ", ".join(f"{name} {rate / 1e3:.1f}" for name, rate in device.gflops.items())
    memory = f"{device.gbs:.0f} GB/s, {device.memory_bytes / 1e9:.0f} GB"
    return f"{device.name}: {rates} TFLOP/s, {memory} ({device.source})"


def _cpu_time() -> str:
    cpus, cores, quota = allowed_cpus(), allowed_cores(), cpu_quota()
    limit = "no quota" if math.isinf(quota) else f"a quota of {quota:g}"
    return f"of {cpus} CPUs on {cores} cores, {limit}"


def _linker() -> Finding:
    from fusion.module.linker import find_linker

    path = find_linker()
    return Finding("linker", path or "none", path is not None, "needed to save modules: install gcc or set CC")


def _pool() -> Finding:
    from fusion import pool

    good = pool.available()
    hint = "beside busy processes kernels are slow: install a C compiler, then fusion again"
    return Finding("worker pool", "compiled" if good else "TVM's", good, hint)


def _cache() -> Finding:
    from fusion.cache import Store, find_place

    place = find_place()
    reason = Store(place).make() if place else ""
    return Finding("cache", str(place.folder) if place else "off", not reason if place else None, f"not used: {reason}")


def _model() -> list[Finding]:
    from fusion.runtime import import_compiler

    try:
        import_compiler()
    except NotInstalledError:
        return []
    from fusion import context

    model = context.resolve().model
    if model is None:
        return [Finding("machine model", "none: fusion tune --machine makes one")]
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(model.made_at))
    used = ", ".join(sorted(model.errors)) or "no kernels: the tables are as good"
    return [Finding("machine model", f"of {model.kernels} kernels at {model.points} points, {when}; ranks {used}")]


def _peers() -> list[Finding]:
    return [Finding(name, _version(name) or "not installed") for name in _PEERS]


def _self_test() -> Finding:
    started = time.perf_counter()
    try:
        good = _compile_and_run()
    except FusionError as error:
        return Finding("self-test", f"failed: {error.what}", False, error.hint)
    return Finding(
        "self-test", f"compiled and ran in {time.perf_counter() - started:.1f} s", good, "the result is wrong"
    )


def _compile_and_run() -> bool:
    import numpy as np

    from fusion.runtime import import_compiler

    import_compiler()
    from tvm import relax

    builder, weight = relax.BlockBuilder(), np.eye(64, dtype=np.float32) * 2
    x = relax.Var("x", relax.TensorType((8, 64), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            product = builder.emit(relax.op.matmul(x, relax.const(weight)))
            result = builder.emit_output(relax.op.nn.relu(product))
        builder.emit_func_output(result)
    array = np.arange(-256, 256, dtype=np.float32).reshape(8, 64)
    (output,) = fusion.compile(builder.get(), cache=False)(array)
    return bool(np.array_equal(output, np.maximum(array * 2, 0)))
