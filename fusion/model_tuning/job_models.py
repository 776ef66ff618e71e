"""The models of a job: those that have kernels become its networks, and are told what comes of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.failures import report
from fusion.measuring import Measuring
from fusion.model_tuning.networks import GivenModel, network_of
from fusion.model_tuning.tuning import TunedModel
from tuning.job import TuningJob
from tuning.study import StudiedKernel


@dataclass
class JobModels:
    """Models as networks of a job.

    Attributes:
        ctx: Of their kernels.
        job: Tunes them.
        prefix: Of the names of its networks.
    """

    ctx: Context
    job: TuningJob
    prefix: str = ""
    _tuned: dict[str, TunedModel] = field(default_factory=dict, init=False)

    def add_all(
        self, given: Sequence[GivenModel], models: Sequence[TunedModel], measured: Measuring, check: Callable[[], None]
    ) -> None:
        """Add models to the job; one without kernels says so."""
        for each, model in zip(given, models, strict=True):
            self._add(each, model, measured)
            check()

    def note(self) -> None:
        """Tell each model what came of it so far."""
        for network in self.job.networks:
            model = self._tuned[network.name]
            model.kernels = len(network.searches)
            model.points = self.job.log.points_of(network.name)
            model.expected = network.expected_gain()
            model.times = self.job.log.times_of(network.name) or model.times
            model.note = network.failure

    def verify(self, seconds: float, check: Callable[[], None]) -> None:
        """Run each model before and after, so many seconds in all."""
        for network in self.job.networks:
            check()
            model = self._tuned[network.name]
            model.times = self.job.verify(network, seconds / len(self.job.networks)) or model.times

    def studied(self) -> dict[str, tuple[StudiedKernel, ...]]:
        """Return what is known of the kernels of each network."""
        return {network.name: tuple(network.studied()) for network in self.job.networks}

    def _add(self, given: GivenModel, model: TunedModel, measured: Measuring) -> None:
        try:
            network = network_of(given, self.ctx, measured)
        except (FusionError, MemoryError):
            raise
        except Declined as declined:
            model.note = f"it is not tuned: {declined}"
            return
        except Exception as error:  # a defect, for which `compile` has other forms, whose kernels are not these
            model.note = report("it is not tuned, as its kernels cannot be told", error)
            return
        name = f"{self.prefix}{given.name}"
        self.job.add(name, network.kernels, network.network, network.cycles, goes_on=True)
        self._tuned[name] = model
