"""Measures chains of anchors in one kernel against the kernels they would be otherwise."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tvm_ffi
from tvm import tirx
from tvm.ir import Var

from backends.tensorir.stages import dtype_of, shape_of
from fusion.tensors import tensor_bytes
from partition.profitability import Profitability
from tuning.build import build_library
from tuning.chain_forms import APART, TOGETHER, ChainForms
from tuning.decide import Decision
from tuning.experiment import Experiment, LibraryCall, Step
from tuning.filled_tensors import FilledTensors
from tuning.known import Knowledge
from tuning.measuring_session import MeasuringSession
from tuning.parts import blocks_of, only_moves, split_kernel, weights_of
from tuning.record import Record
from tuning.toolchain import Toolchain

_CLOSE = 2.0
"""Estimates that differ by more than this factor are not questioned."""
_MOST_COPIES = 16
"""Of the weights."""
_TEXT = 80
"""Characters that name a chain in a note."""
_SECONDS = 2.0
"""For measuring one chain at most; it takes a tenth as a rule."""


@dataclass(frozen=True)
class _Answered:
    """A kernel, and why it is better left in parts; "" where it is not."""

    kernel: tirx.PrimFunc
    reason: str


@dataclass(frozen=True)
class RecallChains:
    """A `Profitability` that says what was measured before, and the estimate of what was not."""

    knowledge: Knowledge
    by_estimate: Profitability

    def __call__(self, kernel: tirx.PrimFunc) -> str:
        """Return why the kernel is better left in parts; "" where it is not."""
        task, reason = self.knowledge.chain(kernel), self.by_estimate(kernel)
        if task is None:
            return reason
        return ChainForms(task, reason, tuple(self.knowledge.records([task]))).reason


@dataclass
class MeasureChains:
    """A `Profitability` that measures where the estimates are close: the kernel against its parts, their weights as
    cold as they are in a network that is larger than L2.

    Attributes:
        knowledge: What was measured before, which is not measured again.
        by_estimate: Answers without measuring.
        folder: For files.
        seconds: What is left for all of it.
        notes: What was measured, one sentence each.
    """

    knowledge: Knowledge
    by_estimate: Profitability
    toolchain: Toolchain
    session: MeasuringSession
    folder: Path
    seconds: float
    notes: list[str] = field(default_factory=list, init=False)
    _known: list[_Answered] = field(default_factory=list, init=False)

    def __call__(self, kernel: tirx.PrimFunc) -> str:
        """Return why the kernel is better left in parts; "" where it is not."""
        for known in self._known:
            if tvm_ffi.structural_equal(known.kernel, kernel):
                return known.reason
        known = _Answered(kernel, self._answer(kernel))
        self._known.append(known)
        return known.reason

    def _answer(self, kernel: tirx.PrimFunc) -> str:
        reason = self.by_estimate(kernel)
        parts = self._doubtful(kernel)
        task = self.knowledge.chain(kernel) if parts else None
        if task is None:
            return reason
        forms = ChainForms(task, reason, tuple(self.knowledge.records([task])))
        if not forms.are_known and self.seconds > 0:
            records = self._compare(kernel, parts, forms)
            self.knowledge.keep(records)
            forms = forms.with_records(records)
        if forms.are_known:
            self.notes.append(f"{_text(kernel)}: {forms.times}")
        return forms.reason

    def _compare(self, kernel: tirx.PrimFunc, parts: Sequence[tirx.PrimFunc], forms: ChainForms) -> Sequence[Record]:
        """Return what both forms are measured to take; nothing where that cannot be measured."""
        started = time.perf_counter()
        kernels = {TOGETHER: [kernel], APART: parts}
        try:
            decision = self._measure({name: kernels[name] for name in forms.names}, weights_of(kernel))
        except OSError:
            decision = None
        self.seconds -= time.perf_counter() - started
        return [] if decision is None else forms.decided(decision, time.time())

    def _doubtful(self, kernel: tirx.PrimFunc) -> list[tirx.PrimFunc]:
        """Return the parts of a kernel whose estimate is close to theirs, and which runs on any data; [] for others."""
        estimated = self.knowledge.compiler.estimate_fusion(kernel)
        if estimated is None:
            return []
        close = 1 / _CLOSE < estimated.weighed / estimated.apart < _CLOSE
        parts = split_kernel(kernel) if close and all("float" in dtype_of(param) for param in kernel.params) else []
        # A matmul that joins two others has those in one kernel where it stays apart.
        return parts if sum(not only_moves(part) for part in parts) == estimated.kernels else []

    def _measure(self, candidates: Mapping[str, Sequence[tirx.PrimFunc]], weights: Sequence[Var]) -> Decision | None:
        """Return which of two candidates is faster; None if that cannot be measured."""
        functions = {f"{name}{index}": func for name, some in candidates.items() for index, func in enumerate(some)}
        scheduled = {name: self.knowledge.compiler.schedule(func) for name, func in functions.items()}
        if any(kernel.note for kernel in scheduled.values()):
            return None  # plain loops, which may take very long
        made = {name: kernel.func for name, kernel in scheduled.items()}
        library = self.folder / f"chain{len(self._known)}.so"
        if len(build_library(list(made.items()), self.toolchain, library, lambda: False)) != len(made):
            return None
        memory = _Memory(weights, functions, made)
        names = [[f"{name}{index}" for index in range(len(some))] for name, some in candidates.items()]
        steps = tuple(
            Step(0, tuple(memory.calls(some, copy) for some in names)) for copy in range(self._copies(weights))
        )
        tensors, storages = tuple(memory.filled.tensors), tuple(memory.filled.storages)
        experiment = Experiment(
            libraries=(str(library),),
            data="",
            storages=storages,
            tensors=tensors,
            steps=steps,
            threads=self.knowledge.compiler.threads,
            seconds=_SECONDS,
        )
        results = self.session.run(experiment)
        return results.decisions[0] if results.decisions else None

    def _copies(self, weights: Sequence[Var]) -> int:
        """Return how many copies of the weights do not fit the cores' own caches together."""
        size = sum(tensor_bytes(shape_of(weight), dtype_of(weight)) for weight in weights)
        return min(_MOST_COPIES, 1 + 2 * self.knowledge.compiler.private_bytes() // size) if size else 1


@dataclass
class _Memory:
    """Tensors for both candidates for a chain: activations are shared by all copies, weights are not.

    Attributes:
        weights: The buffers that are.
        functions, made: Kernels before and after they got loops, by name; the latter may have other parameters.
    """

    weights: Sequence[Var]
    functions: Mapping[str, tirx.PrimFunc]
    made: Mapping[str, tirx.PrimFunc]
    filled: FilledTensors = field(default_factory=FilledTensors, init=False)

    def calls(self, names: Sequence[str], copy: int) -> tuple[LibraryCall, ...]:
        """Return the calls of a candidate, the functions of these `names`, on a copy."""
        return tuple(
            LibraryCall(name, tuple(
                self.filled.tensor((source, copy if source in self.weights else 0), parameter)
                for source, parameter in zip(self.functions[name].params, self.made[name].params, strict=True)
            ))
            for name in names
        )  # fmt: skip


def _text(kernel: tirx.PrimFunc) -> str:
    """Return the operators of `kernel`, as `explain` names them."""
    return " ".join(str(block.name_hint).removeprefix("T_") for block in blocks_of(kernel))[:_TEXT]
