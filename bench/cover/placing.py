"""The process in which a model is placed: `python -m bench.cover.placing FD`, driven by `bench.remote`."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.peers.engine import Job
from bench.serve import serve


class Placing:
    """The requests that the process answers; its environment says where caches and records are."""

    def compile(
        self, job: Job, backends: Sequence[str], saved: Path | None, cache: bool
    ) -> tuple[float, str, tuple[str, ...]]:
        """Compile the job's model for some backends, and save it where that is asked for; return the seconds, imports
        not counted, where the model runs in a line, and what was measured of placements, a sentence each."""
        import fusion

        compiler = fusion.compile  # imports the compiler
        started = time.perf_counter()
        module = compiler(
            str(job.path), shapes=dict(job.shapes), threads=job.threads, effort=job.effort, backends=list(backends),
            cache=cache,
        )  # fmt: skip
        seconds = time.perf_counter() - started
        if saved is not None:
            module.save(str(saved))
        (form,) = module.specializations
        notes = tuple(note for note in form.notes if "the model takes" in note or "runs nothing" in note)
        return seconds, str(module.placement), notes


if __name__ == "__main__":
    serve(int(sys.argv[1]), Placing)
