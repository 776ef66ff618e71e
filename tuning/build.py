"""Makes one library of many candidates, on all CPUs and until a deadline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

from tvm import tirx

from fusion.system.map_in_threads import ThreadedCalls
from tuning.toolchain import Toolchain

_PART = 2
"""Kernels that LLVM gets at a time: few enough that the deadline is kept, as what has begun is not stopped. Of 32
points of SqueezeNet two together took up to 0.8 s and four 1.2 (one CPU of Zen 3), with 1% less CPU time; one alone
0.5, with 3% more."""

Named = tuple[str, tirx.PrimFunc]


def build_library(kernels: Iterable[Named], toolchain: Toolchain, library: Path, over: Callable[[], bool]) -> set[str]:
    """Write `library` and return the names of the kernels that are in it; none where it could not be written.

    What is first in `kernels` is built first, while those behind it are still being made where they come from an
    iterator; one that fails to build is left out.
    """
    some = iter(kernels)

    def compile_part(part: Sequence[Named]) -> list[tuple[Path, list[str]]]:
        return [] if over() else _compile(part, toolchain, library)

    with ThreadedCalls() as calls:
        parts = [calls.add(partial(compile_part, part)) for part in iter(lambda: list(islice(some, _PART)), [])]
        built = [entry for entries in calls.results(parts) for entry in entries]
    if not built:
        return set()
    try:
        toolchain.link([path for path, _ in built], library)
    except Exception:  # without a library nothing is measured, and the compilation goes on
        return set()
    finally:
        for path, _ in built:
            path.unlink(missing_ok=True)
    return {name for _, names in built for name in names}


def _compile(part: Sequence[Named], toolchain: Toolchain, library: Path) -> list[tuple[Path, list[str]]]:
    """Return the object files made of `part`: one, or where that fails, one of each kernel that can be built."""
    path = library.with_name(f"{library.stem}_{part[0][0]}_{len(part)}.o")
    try:
        toolchain.compile(dict(part), path)
        return [(path, [name for name, _ in part])]
    except Exception:  # TVM raises whatever its checks raise
        return [] if len(part) == 1 else [entry for kernel in part for entry in _compile([kernel], toolchain, library)]
