"""Saves modules of one model, and runs them side by side in a process of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fusion.compiled_module import CompiledModule
from fusion.context import Context
from fusion.module.settings import settings_of
from fusion.module.specialization import Specialization
from fusion.placing.experiment import ModuleExperiment
from fusion.system.temporary_folder import temporary_folder
from tuning.measuring_session import MeasuringSession, Results

_COMMAND = "from fusion.placing.worker import main; main()"
_TOLERANCES = {"fp32": 1e-3, "bf16": 3e-2, "tf32": 3e-3}
"""By precision, how far results of libraries may be from those of our kernels: float32 sums in other orders differ by
less, and libraries do not round to bfloat16 where our kernels do."""


@dataclass
class PlacementBench:
    """Compares modules that compute the same.

    Attributes:
        session: Runs experiments in its process.
        folder: The folder for the files of experiments.
        tolerance: How far results may differ, as a share of the largest of them.
    """

    session: MeasuringSession
    folder: Path
    tolerance: float
    _files: int = field(default=0, init=False)

    def save(self, form: Specialization, ctx: Context) -> str:
        """Save `form`, which was compiled with `ctx`, as a module; return its path."""
        path = self.folder / f"module{self._files}.fusion"
        self._files += 1
        CompiledModule(form.inputs, form.outputs, settings_of(ctx), fixed=form).save(path)
        return str(path)

    def compare(self, paths: Sequence[str], seconds: float) -> Results:
        """Run saved modules by turns for some seconds. The first is the default, which the others have to agree with;
        each is a candidate of the only decision."""
        return self.session.run(ModuleExperiment(tuple(paths), seconds, self.tolerance))


@contextmanager
def placement_bench(ctx: Context) -> Iterator[PlacementBench]:
    """Yield a bench for modules of the precision of `ctx`; at the end its files are removed and its process ends."""
    with temporary_folder() as folder, MeasuringSession(folder, _COMMAND) as session:
        yield PlacementBench(session, folder, _TOLERANCES[ctx.precision])
