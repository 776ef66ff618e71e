"""fusion with oneDNN for each operator that it takes: what a single operator takes there, the call of it included."""

from __future__ import annotations

from pathlib import Path

import fusion
from backends.registry import library
from bench.peers.engine import Engine, Job, Runner


class OneDnnPeer:
    """A model whose operators are primitives of oneDNN."""

    def load(self, job: Job, folder: Path) -> Runner:
        """Compile for the shapes of the job.

        Raises:
            NotInstalledError: oneDNN is not installed: our kernels would run instead.
        """
        library("onednn")
        compiled = fusion.compile(
            str(job.path), shapes=dict(job.shapes), threads=job.threads, backends=["onednn", "cpu"]
        )
        return compiled.run


ENGINE: Engine = OneDnnPeer()
