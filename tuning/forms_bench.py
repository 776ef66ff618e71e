"""Measures two forms of a part of a model against each other, outside of the network: each is calls of some kernels,
and what was measured before is not measured again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from backends.backend import KernelCompiler
from backends.tensorir.result import Scheduled
from tuning.build import build_library
from tuning.decide import Decision
from tuning.experiment import Experiment, LibraryCall, Step
from tuning.filled_tensors import FilledTensors
from tuning.known import Knowledge
from tuning.measuring_session import MeasuringSession
from tuning.toolchain import Toolchain
from tuning.two_forms import TwoForms

_MOST_COPIES = 16
"""Of the weights."""
_SECONDS = 2.0
"""For measuring two forms at most; it takes a tenth as a rule."""

Calls = Callable[[int], Sequence[tuple[LibraryCall, ...]]]
"""Number of a copy of the weights -> the calls of each form on it."""


@dataclass(frozen=True)
class FormsBench:
    """What it takes.

    Attributes:
        folder: For files.
    """

    compiler: KernelCompiler
    toolchain: Toolchain
    session: MeasuringSession
    folder: Path
    _numbers: count[int] = field(default_factory=count, init=False)

    def compare(
        self, kernels: Mapping[str, Scheduled], calls: Calls, filled: FilledTensors, weight_bytes: int
    ) -> Decision | None:
        """Return which of two forms is faster, their weights as cold as they are in a network that is larger than L2;
        None if that cannot be measured.

        Args:
            kernels: Of both, by symbol.
            filled: The tensors of the calls, which are known once `calls` has returned them.
            weight_bytes: Of one copy.
        """
        if any(kernel.note for kernel in kernels.values()):
            return None  # plain loops, which may take very long
        library = self.folder / f"forms{next(self._numbers)}.so"
        functions = [(symbol, kernel.func) for symbol, kernel in kernels.items()]
        if len(build_library(functions, self.toolchain, library, lambda: False)) != len(functions):
            return None
        steps = tuple(Step(0, tuple(calls(copy))) for copy in range(self._copies(weight_bytes)))
        experiment = Experiment(
            libraries=(str(library),),
            data="",
            storages=tuple(filled.storages),
            tensors=tuple(filled.tensors),
            steps=steps,
            threads=self.compiler.threads,
            seconds=_SECONDS,
        )
        results = self.session.run(experiment)
        return results.decisions[0] if results.decisions else None

    def _copies(self, size: int) -> int:
        """Return how many copies of weights of `size` bytes do not fit the cores' own caches together, or the most that
        there are."""
        return min(_MOST_COPIES, 1 + 2 * self.compiler.private_bytes() // size) if size else 1


@dataclass
class FormsMeasurer:
    """Measures forms of a kind while there is time.

    Attributes:
        knowledge: What was measured before, which is not measured again.
        seconds: What is left for all of it.
        notes: What was measured, one sentence each.
    """

    knowledge: Knowledge
    bench: FormsBench
    seconds: float
    notes: list[str] = field(default_factory=list, init=False)

    def settle(self, forms: TwoForms, measure: Callable[[], Decision | None], name: str) -> TwoForms:
        """Return `forms`, called so in a note, with what they take, which `measure` says where it is not known yet."""
        if not forms.are_known and self.seconds > 0:
            started = time.perf_counter()
            try:
                decision = measure()
            except OSError:
                decision = None
            self.seconds -= time.perf_counter() - started
            records = [] if decision is None else forms.decided(decision, time.time())
            self.knowledge.keep(records)
            forms = forms.with_records(records)
        if forms.are_known:
            self.notes.append(f"{name}: {forms.times}")
        return forms
