"""fusion: compiled and saved in one process, loaded and run in another, as a user deploys it.

Saving needs a linker. Without one the process that runs the model compiles it itself.
"""

from __future__ import annotations

from pathlib import Path

import fusion
from bench.peers.engine import Arrays, Engine, Job, Kernels, Runner
from fusion.module import linker
from fusion.stages import Stages

_FILE = "model.fusion"


class Fusion:
    """`fusion.compile` with default options but for the job's precision, effort and backends, without a cache and
    without what was measured before: it is timed. Calls wait for their form, as ONNX Runtime is another engine; hot
    shapes get none, which would be compiled beside the calls of others."""

    _module: fusion.CompiledModule | None = None
    _compilations = 0

    def build(self, job: Job, folder: Path) -> bool:
        """Compile the model, and save it if there is a linker; return whether there is one."""
        self._module = _compile(job)
        return self.save(folder)

    def load(self, job: Job, folder: Path) -> Runner:
        """Load the saved module, or compile the model where none could be saved."""
        if linker.find_linker() is None:
            self._module = _compile(job)
        else:
            self._module = fusion.load(str(job.compiled.path if job.compiled else folder / _FILE))
        return self._module.run

    def open(self, job: Job) -> Runner:
        """Compile the model in this process: a saved module has only the forms that it was saved with."""
        module = self._module = _compile(job)
        self._compilations = 0

        def run(inputs: Arrays) -> Arrays:
            stages = Stages()
            with stages.watch():
                outputs = module.run(inputs)
            self._compilations += bool(stages.times)
            return outputs

        return run

    def forms(self) -> int:
        """Return how many forms the module has."""
        assert self._module is not None, "open comes first"
        return len(self._module.specializations)

    def save(self, folder: Path) -> bool:
        """Save the module opened last where `load` finds it, if there is a linker; return whether there is one."""
        assert self._module is not None, "open comes first"
        can_save = linker.find_linker() is not None
        if can_save:
            self._module.save(str(folder / _FILE))
        return can_save

    def compilations(self) -> int:
        """Return in how many calls of the module opened last there were stages of compiling."""
        return self._compilations

    def kernels(self, inputs: Arrays, seconds: float) -> Kernels:
        """Return what the profile says of the kernels."""
        assert self._module is not None, "load comes first"
        found = self._module.profile(inputs, seconds=seconds).kernels
        return Kernels(sum(kernel.calls for kernel in found), sum(kernel.seconds for kernel in found))


def _compile(job: Job) -> fusion.CompiledModule:
    return fusion.compile(
        str(job.path), shapes=dict(job.shapes), threads=job.threads, precision=job.precision, effort=job.effort,
        cache=False, database=False, wait=True, hot_shapes=0, bounds=job.bounds,
        backends=job.backends,
    )  # fmt: skip


ENGINE: Engine = Fusion()
