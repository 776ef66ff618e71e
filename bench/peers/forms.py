"""fusion with some of its techniques left out, or with every chain in one kernel that a template takes, as a peer of
itself."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tvm import tirx

import fusion
from bench.peers.engine import Job, Runner
from fusion import context, pipeline
from fusion.context import Context
from fusion.frontends import import_model, open_model
from fusion.module.settings import settings_of
from fusion.module.specialize import specialize
from partition.profitability import Profitability, no_template
from partition.techniques import ALL, Technique

FORCED = "forced"


@dataclass(frozen=True)
class PeerForm:
    """One form of every model.

    Attributes:
        techniques: Those used.
        forced: Whether each chain becomes one kernel that a template takes, whatever the cost tables say.
    """

    techniques: frozenset[Technique] = ALL
    forced: bool = False

    @staticmethod
    def of(text: str) -> PeerForm:
        """Return the form that `str` gives this text for."""
        names = [name for name in text.split("+") if name]
        techniques = frozenset(Technique[name.upper()] for name in names if name != FORCED)
        return PeerForm(techniques, FORCED in names)

    def __str__(self) -> str:
        names = [technique.name.lower() for technique in Technique if technique in self.techniques]
        return "+".join([*names, FORCED] if self.forced else names)

    def load(self, job: Job, folder: Path) -> Runner:
        """Compile, save and load the model, as a user of fusion does."""
        ctx = context.resolve(threads=job.threads, strict=True, precision=job.precision)
        imported = import_model(open_model(str(job.path)), dict(job.shapes), strict=True)
        lowered = pipeline.lower(imported, ctx, self.techniques, take_all(ctx) if self.forced else None)
        made = specialize(imported, lowered, ctx)
        module = fusion.CompiledModule(made.inputs, made.outputs, settings_of(ctx), fixed=made)
        path = folder / f"{self}.fusion"
        module.save(str(path))
        return fusion.load(str(path)).run


def take_all(ctx: Context) -> Profitability:
    """Return a profitability that leaves a chain in parts only where no template takes it."""

    def why_not_fused(kernel: tirx.PrimFunc) -> str:
        return "" if ctx.compiler.estimate_fusion(kernel) else no_template(kernel)

    return why_not_fused
