"""fusion in float32, as a peer of itself in bfloat16."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from bench.peers.engine import Engine, Job, Runner
from bench.peers.ours import Fusion


class FusionFloat32:
    """Compiled while it loads, as a peer is."""

    def load(self, job: Job, folder: Path) -> Runner:
        """Compile, save and load the model."""
        job = dataclasses.replace(job, precision="fp32", compiled=None)
        engine = Fusion()
        engine.build(job, folder)
        return engine.load(job, folder)


ENGINE: Engine = FusionFloat32()
