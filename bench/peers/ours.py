"""fusion: compiled and saved in one process, loaded and run in another, as a user deploys it."""

from __future__ import annotations

from pathlib import Path

import fusion
from bench.peers.engine import Engine, Job, Runner

_FILE = "model.fusion"


class Fusion:
    """`fusion.compile` with default options."""

    def build(self, job: Job, folder: Path) -> None:
        """Compile the model and save it."""
        module = fusion.compile(str(job.path), target="llvm", shapes=dict(job.shapes), threads=job.threads)
        module.save(str(folder / _FILE))

    def load(self, job: Job, folder: Path) -> Runner:
        """Load the saved module."""
        return fusion.load(str(job.compiled.path if job.compiled else folder / _FILE)).run


ENGINE: Engine = Fusion()
