"""What was learned of a machine: a cost model of all its kernels, and how far that is to be trusted for each family."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from tuning.canonical import Fields, canonical
from tuning.cost_model import CostModel, MeasuredSpace
from tuning.record import checked_fields, with_sum
from tuning.task import Environment

_VERSION = 1
LEAST_KERNELS = 8
"""For a model."""
_LEAST_CHOSEN = 3
"""Kernels of a family for which a model has to take another point than the default, to say that it gains."""
_FOLDS = 8
"""Parts of the kernels, each of which is asked of a model that learned the others."""
_log = logging.getLogger("fusion.tuning")


@dataclass(frozen=True)
class MachineModel:
    """All that was learned in an environment.

    Attributes:
        environment: The one.
        made_at: When, as `time.time` tells it.
        kernels: How many were measured.
        points: Of all of them.
        errors: By how much the logarithm of the time is wrong of the points that the model would take, the root of the
            mean of squares: a point that is expected to gain less is none to take. Of those families for which models
            that take points so were seen to gain, on kernels that they had not seen; others stay with the tables.
        line: The cost model as text, which is read when it is asked for.
    """

    environment: Environment
    made_at: float
    kernels: int
    points: int
    errors: Mapping[str, float]
    line: str

    @staticmethod
    def fit(measured: Mapping[str, Sequence[MeasuredSpace]], environment: Environment, made_at: float) -> MachineModel:
        """Return what is learned of the kernels that were `measured`, by family; there are two at least."""
        kernels = [(family, space) for family, spaces in sorted(measured.items()) for space in spaces]
        model = CostModel.fit([space for _, space in kernels])
        return MachineModel(
            environment=environment,
            made_at=made_at,
            kernels=len(kernels),
            points=sum(len(space.seconds) for _, space in kernels),
            errors=_errors(kernels),
            line=canonical({"names": list(model.names), "trees": model.trees}),
        )

    @cached_property
    def digest(self) -> str:
        """What tells it from others that choose otherwise: a sha256 of the cost model and its errors; "" where it ranks
        no family."""
        return _sum(f"{canonical(dict(self.errors))}\n{self.line}") if self.errors else ""

    @cached_property
    def model(self) -> CostModel | None:
        """The cost model; None where there is none in the text, with a warning."""
        try:
            fields = Fields.of(json.loads(self.line))
            model = CostModel(fields.names("names"), fields.text("trees"))
            model.ratios([{}])  # of what is no tree it raises
        except (ValueError, RecursionError) as error:
            _warn(f"the model of this machine is not used: {error}")
            return None
        return model

    def as_text(self) -> str:
        """Return it as two lines of JSON: what it is of, and the cost model."""
        header = {
            "version": _VERSION, "environment": self.environment.as_data(), "made_at": self.made_at,
            "kernels": self.kernels, "points": self.points, "errors": dict(self.errors), "model": _sum(self.line),
        }  # fmt: skip
        return f"{with_sum(header)}\n{self.line}\n"

    @staticmethod
    def from_text(text: str) -> MachineModel:
        """Return what `as_text` returned.

        Raises:
            ValueError: It did not, or it is damaged.
        """
        header, _, rest = text.partition("\n")
        fields, line = checked_fields(header), rest.removesuffix("\n")
        if fields.count("version") != _VERSION:
            raise ValueError(f"it is of version {fields.count('version')}")
        if fields.text("model") != _sum(line):
            raise ValueError("the sum of its model does not match")
        errors = fields.fields("errors")
        return MachineModel(
            environment=Environment.from_data(fields.fields("environment")),
            made_at=fields.seconds("made_at"),
            kernels=fields.count("kernels"),
            points=fields.count("points"),
            errors={family: errors.seconds(family) for family in errors.data},
            line=line,
        )


@dataclass(frozen=True)
class _Try:
    """What a model that has not seen a kernel would take of it: logarithms of the time over that of the default."""

    expected: float
    measured: float


def _errors(kernels: Sequence[tuple[str, MeasuredSpace]]) -> dict[str, float]:
    """Return by how much models are wrong about kernels of those families for which they gain."""
    folds = np.random.default_rng(0).permutation(len(kernels)) % min(_FOLDS, len(kernels))
    found = defaultdict[str, list[_Try]](list)
    for fold in range(folds.max() + 1):
        model = CostModel.fit([space for (_, space), its in zip(kernels, folds, strict=True) if its != fold])
        for (family, space), its in zip(kernels, folds, strict=True):
            if its == fold:
                found[family].append(_try(model, space))
    errors = {family: float(np.sqrt(np.mean([(each.measured - each.expected) ** 2 for each in tries])))
              for family, tries in found.items()}  # fmt: skip
    return {family: error for family, error in errors.items() if _gains(found[family], error)}


def _gains(tries: Sequence[_Try], error: float) -> bool:
    """Return whether those that are expected to gain more than the error have gained, by more than by chance."""
    changes = [each.measured for each in tries if each.expected < -error]
    if len(changes) < _LEAST_CHOSEN:
        return False
    return bool(np.mean(changes) < -np.std(changes, ddof=1) / len(changes) ** 0.5)


def _try(model: CostModel, space: MeasuredSpace) -> _Try:
    ratios = model.ratios(space.features)
    best = min(range(1, len(ratios)), key=ratios.__getitem__)
    return _Try(float(np.log(ratios[best])), float(np.log(space.seconds[best] / space.seconds[0])))


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def _warn(text: str) -> None:
    """Log `text` the first time that this process has reason to."""
    _log.warning("%s", text)
