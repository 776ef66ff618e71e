"""A job whose candidates do what generated code never should: it ends, none is tried again, and nothing is left."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tvm import tirx

from fusion import context
from fusion.measuring import Measuring
from fusion.model_tuning.networks import GivenModel, network_of
from fusion.system.temporary_folder import temporary_folder
from tuning.database import Database
from tuning.job import TuningJob
from tuning.known import Knowledge
from tuning.limits import Limits
from tuning.measuring_session import MeasuringSession
from tuning.workloads import draw_workloads

_BODIES = {
    "faults": "*(volatile int*)8 = 1;",
    "hangs": "for (volatile int turn = 0;;) turn ^= 1;",
    "grows": "for (;;) { char* some = malloc(1 << 26); if (!some) abort(); memset(some, 1, 1 << 12); }",
    "floods": 'for (int line = 0; line < 200000; ++line) { fputs("no answer\\n", stderr); puts("{}"); }',
}
_INCLUDES = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n"
_GOOD = ""
_SEED, _SECONDS = 0, 600.0


@dataclass
class BadToolchain:
    """Makes code that does nothing for the default of each kernel, and of other points bad code of all kinds in turn; a
    `tuning.toolchain.Toolchain`.

    Attributes:
        kinds: What was made, by symbol.
    """

    kinds: dict[str, str] = field(default_factory=dict, init=False)

    def refusal(self) -> str:
        """See `Toolchain`."""
        return ""

    def compile(self, kernels: Mapping[str, tirx.PrimFunc], path: Path) -> None:
        """See `Toolchain`."""
        source = path.with_suffix(".c")
        source.write_text(_INCLUDES + "".join(map(self._code, kernels)))
        _run_compiler("-c", "-fPIC", "-O0", str(source), "-o", str(path))
        source.unlink()

    def link(self, objects: Sequence[Path], path: Path) -> None:
        """See `Toolchain`."""
        _run_compiler("-shared", *map(str, objects), "-o", str(path))

    def _code(self, symbol: str) -> str:
        _, _, number = symbol.partition("_")
        kind = list(_BODIES)[int(number) % len(_BODIES)] if number else _GOOD
        self.kinds[symbol] = kind
        body = _BODIES.get(kind, "")
        return f"int __tvm_ffi_{symbol}(void* self, const void* given, int count, void* made) {{ {body} return 0; }}\n"


@dataclass(frozen=True)
class BadJob:
    """What became of a job.

    Attributes:
        made: How many candidates of each kind had code.
        failed: Points that are never tried again, by their records.
        measured: Points that were.
        left: Files that are left of it.
        running: Processes that this one has started for it and that have not ended.
    """

    made: Mapping[str, int]
    failed: int
    measured: int
    left: tuple[str, ...]
    running: tuple[int, ...]

    @property
    def holds(self) -> bool:
        """Whether each kind was tried, all that failed is known, and nothing is left."""
        return all(self.made.get(kind) for kind in _BODIES) and self.failed > 0 and not self.left and not self.running


def tune_bad_candidates(
    database: Database, session_type: type[MeasuringSession] = MeasuringSession, points: int = 4
) -> BadJob:
    """Tune a drawn operator with such candidates, so many `points` of each kernel."""
    others = set(_workers())
    ctx, toolchain = context.resolve(threads=1, database=str(database.path)), BadToolchain()
    (workload,) = draw_workloads(_SEED, 1)
    network = network_of(GivenModel(workload.name, workload.module(), {}), ctx, Measuring(ctx))
    with temporary_folder() as folder:
        with session_type(folder) as session:
            job = TuningJob(
                knowledge=Knowledge.of(database, ctx.compiler),
                toolchain=toolchain,
                session=session,
                folder=folder,
                limits=Limits(points),
            )
            job.add(workload.name, network.kernels, network.network, network.cycles, goes_on=True)
            job.run(_SECONDS)
        running = tuple(sorted(set(_workers()) - others))
        files = tuple(str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".c", ".o"))
    failed = sum(point.failed for made in job.log.rounds for point in made.points)
    return BadJob(
        made=Counter(toolchain.kinds.values()),
        failed=failed,
        measured=job.log.measured,
        left=(*files, *((str(folder),) if folder.exists() else ())),
        running=running,
    )


def _run_compiler(*arguments: str) -> None:
    subprocess.run([os.environ.get("CC", "cc"), *arguments], check=True)


def _workers() -> tuple[int, ...]:
    """Return the processes that this one has started and that have not ended, where the system tells."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, parent, *_ = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        if int(parent) == os.getpid() and state not in "ZX":
            found.append(int(path.parent.name))
    return tuple(found)
