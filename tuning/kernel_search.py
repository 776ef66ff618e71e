"""The search for one kernel within a job: its records, and the points that must not be offered again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from backends.tensorir.space import Point
from tuning.canonical import canonical
from tuning.known import KnownKernel, ranked
from tuning.machine_model import MachineModel
from tuning.record import Record
from tuning.search import Offer, Search, key_of


@dataclass
class KernelSearch:
    """A kernel that is being tuned, in all networks that have it.

    Attributes:
        known: The kernel, with all its records.
        search: The search over its space.
    """

    known: KnownKernel
    search: Search
    _left_out: set[str] = field(default_factory=set, init=False)
    _under_way: set[str] = field(default_factory=set, init=False)
    _offers: list[Offer] | None = field(default=None, init=False)
    _asked: int = field(default=0, init=False)

    @staticmethod
    def of(known: KnownKernel, machine: MachineModel | None) -> KernelSearch:
        """Return the search that continues from what is known."""
        return KernelSearch(known, Search.of(known.choices, known.task.tensors, machine))

    @property
    def tried(self) -> int:
        """The number of points, beside the default, that were measured, are being measured, or cannot be."""
        default = self.known.choices.space.default.axes()
        keys = {canonical(record.point) for record in self.known.records if record.point != default}
        return len(keys | self._left_out | self._under_way)

    def best(self) -> Point | None:
        """Return the best point that beats the default; None if none does."""
        record = self.best_record()
        return None if record is None else self.search.find(record.point)

    def best_record(self) -> Record | None:
        """Return the record of that point. Those of points that the space does not have are ignored."""
        records = ranked(self.known.records)
        return next((record for record in records if self.search.find(record.point) is not None), None)

    def offers(self, most: int) -> list[Offer]:
        """Return up to `most` points that are worth measuring: see `Search.offers`."""
        if self._offers is None or self._asked < most:
            self._asked = most
            self._offers = self.search.offers(self.known.records, most, self._left_out | self._under_way)
        return self._offers[:most]

    def leave_out(self, points: Iterable[Point]) -> None:
        """Exclude these: they equal other points, do not compile, or are not reached in a run."""
        self._left_out.update(map(key_of, points))
        self._offers = None

    def begin(self, points: Iterable[Point]) -> None:
        """Exclude these until `end`: they are being measured."""
        self._under_way.update(map(key_of, points))
        self._offers = None

    def end(self, points: Iterable[Point]) -> None:
        """Allow these again, unless they were measured."""
        self._under_way.difference_update(map(key_of, points))
        self._offers = None

    def keep(self, records: Iterable[Record]) -> None:
        """Add those of `records` that are of this kernel."""
        self.known = self.known.with_records(records)
        self._offers = None
