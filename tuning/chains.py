"""Measures chains of anchors in one kernel against the kernels they would be otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import tirx
from tvm.ir import Var

from backends.tensorir.stages import dtype_of, shape_of
from fusion.tensors import tensor_bytes
from partition.profitability import Profitability
from tuning.decide import Decision
from tuning.experiment import LibraryCall
from tuning.filled_tensors import FilledTensors
from tuning.forms_bench import FormsMeasurer
from tuning.known import Knowledge
from tuning.parts import blocks_of, only_moves, split_kernel, weights_of
from tuning.task import TuningTask
from tuning.two_forms import TwoForms

_AXIS, _NAMES = "fused", ("apart", "together")
"""Of the points, and what their forms are called."""
_CLOSE = 2.0
"""Estimates that differ by more than this factor are not questioned."""
_TEXT = 80
"""Characters that name a chain in a note."""


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
        return _reason(_forms(task, reason, self.knowledge), reason)


@dataclass
class MeasureChains(FormsMeasurer):
    """A `Profitability` that measures where the estimates are close: the kernel against its parts, their weights as
    cold as they are in a network that is larger than L2.

    Attributes:
        by_estimate: Answers without measuring.
    """

    by_estimate: Profitability
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
        forms = _forms(task, reason, self.knowledge)
        kernels = dict(zip(_NAMES, (parts, [kernel]), strict=True))
        ordered = {_NAMES[form]: kernels[_NAMES[form]] for form in forms.order}
        forms = self.settle(forms, lambda: self._measure(ordered, weights_of(kernel)), _text(kernel))
        return _reason(forms, reason)

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
        scheduled = {name: self.bench.compiler.schedule(func) for name, func in functions.items()}
        memory = _Memory(weights, functions, {name: kernel.func for name, kernel in scheduled.items()})
        names = [[f"{name}{index}" for index in range(len(some))] for name, some in candidates.items()]
        size = sum(tensor_bytes(shape_of(weight), dtype_of(weight)) for weight in weights)

        def calls(copy: int) -> list[tuple[LibraryCall, ...]]:
            return [memory.calls(some, copy) for some in names]

        return self.bench.compare(scheduled, calls, memory.filled, size)


def _forms(task: TuningTask, estimated: str, knowledge: Knowledge) -> TwoForms:
    """Return what is known of a chain, given why several kernels are faster by estimate; "" where one is."""
    return TwoForms(task, _AXIS, _NAMES, 0 if estimated else 1, tuple(knowledge.records([task])))


def _reason(forms: TwoForms, estimated: str) -> str:
    """Return why several kernels are faster; "" where one is."""
    if forms.chosen == forms.estimated:
        return estimated
    return "" if forms.chosen else f"measured {forms.times}"


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
