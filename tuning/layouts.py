"""Measures the kernels of a graph in two layouts against each other: the calls that only one of the layouts has."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from backends.tensorir.result import Kernel
from fusion.tensors import tensor_bytes
from tuning.canonical import canonical
from tuning.decide import Decision
from tuning.experiment import LibraryCall
from tuning.filled_tensors import FilledTensors
from tuning.forms_bench import FormsMeasurer
from tuning.known import Knowledge, tensors_of
from tuning.structure import structure_of
from tuning.task import LAYOUT, TuningTask
from tuning.two_forms import TwoForms

if TYPE_CHECKING:
    from fusion.module.plan import Argument, KernelCall, RunPlan

_AXIS, _NAMES = "moved", ("as tensors lie", "with tensors moved")
"""Of the points, and what their forms are called."""


@dataclass(frozen=True)
class LayoutForm:
    """A graph in one layout.

    Attributes:
        kernels: By name, with their loops.
        plan: Its memory and calls.
    """

    kernels: Mapping[str, Kernel]
    plan: RunPlan

    @property
    def cycles(self) -> float:
        """The estimated cycles of all calls; infinite where a kernel has no estimate."""
        return sum(self.kernels[call.kernel].made.cycles or inf for call in self.plan.calls)

    def sums(self) -> dict[str, str]:
        """Return what tells the structure of each kernel, by name. TVM raises whatever it does where one has no
        text."""
        return {name: structure_of(kernel.source) for name, kernel in self.kernels.items()}


@dataclass(frozen=True)
class _Differing:
    """What only one of two forms has.

    Attributes:
        form: The form.
        sums: Of its kernels.
        calls: Those that the other has not, in order: of a kernel that both call, as many as it calls it more often.
    """

    form: LayoutForm
    sums: Mapping[str, str]
    calls: Sequence[KernelCall]

    @classmethod
    def of(cls, form: LayoutForm, sums: Mapping[str, str], others: Iterable[str]) -> _Differing:
        """Return what `form`, whose kernels have these `sums`, has beside a form whose calls are of kernels with the
        sums `others`."""
        shared = Counter(others)
        calls: list[KernelCall] = []
        for call in form.plan.calls:
            if shared[sums[call.kernel]]:
                shared[sums[call.kernel]] -= 1
            else:
                calls.append(call)
        return cls(form, sums, calls)

    def kernels(self) -> dict[str, Kernel]:
        """Return the kernels of the calls, by name."""
        return {call.kernel: self.form.kernels[call.kernel] for call in self.calls}

    def weight_bytes(self) -> int:
        """Return the bytes of the weights that the calls take."""
        taken = {argument for call in self.calls for argument in call.arguments if argument.kind == "weight"}
        return sum(tensor_bytes(argument.shape, argument.dtype) for argument in taken)


@dataclass(frozen=True)
class RecallLayouts:
    """Says which layout was measured to be faster; the estimate's of those that were not."""

    knowledge: Knowledge

    def __call__(self, forms: tuple[LayoutForm, LayoutForm], estimated: int) -> int:
        """Return which of two `forms`, as tensors lie and with them moved, is faster; `estimated` says so by
        estimate."""
        differing = _differing(forms)
        return _known(differing, estimated, self.knowledge).chosen if _are_two(differing) else estimated


@dataclass
class MeasureLayouts(FormsMeasurer):
    """Measures two layouts, weights as cold as they are in a network that is larger than L2."""

    def __call__(self, forms: tuple[LayoutForm, LayoutForm], estimated: int) -> int:
        """See `RecallLayouts`."""
        differing = _differing(forms)
        if not _are_two(differing):
            return estimated
        known = _known(differing, estimated, self.knowledge)
        ordered = [differing[form] for form in known.order]
        return self.settle(known, lambda: self._measured(ordered), "kernels that two layouts differ by").chosen

    def _measured(self, forms: Sequence[_Differing]) -> Decision | None:
        """Return which of two forms is faster; None if that cannot be measured."""
        kernels = {
            _symbol(place, name): kernel.made
            for place, form in enumerate(forms)
            for name, kernel in form.kernels().items()
        }
        filled = FilledTensors()

        def calls(copy: int) -> list[tuple[LibraryCall, ...]]:
            return [tuple(_calls(place, form, copy, filled)) for place, form in enumerate(forms)]

        return self.bench.compare(kernels, calls, filled, max(form.weight_bytes() for form in forms))


def _differing(forms: tuple[LayoutForm, LayoutForm]) -> tuple[_Differing, _Differing]:
    lying, moved = forms
    sums = lying.sums(), moved.sums()
    called = [[own[call.kernel] for call in form.plan.calls] for form, own in zip(forms, sums, strict=True)]
    return _Differing.of(lying, sums[0], called[1]), _Differing.of(moved, sums[1], called[0])


def _are_two(differing: tuple[_Differing, _Differing]) -> bool:
    """Return whether each form has calls of its own, which alone are compared."""
    return all(each.calls for each in differing)


def _known(differing: tuple[_Differing, _Differing], estimated: int, knowledge: Knowledge) -> TwoForms:
    """Return what is known of two forms."""
    structures = [[each.sums[call.kernel] for call in each.calls] for each in differing]
    structure = hashlib.sha256(canonical({"calls": structures}).encode()).hexdigest()
    tensors = [tensor for kernel in differing[0].kernels().values() for tensor in tensors_of(kernel.source)]
    task = TuningTask(LAYOUT, LAYOUT, structure, tuple(tensors), knowledge.environment)
    return TwoForms(task, _AXIS, _NAMES, estimated, tuple(knowledge.records([task])))


def _calls(place: int, form: _Differing, copy: int, filled: FilledTensors) -> Iterator[LibraryCall]:
    """Yield the calls of a form on a copy of its weights; what passes from one to the other is the same tensor."""
    for call in form.calls:
        parameters = form.form.kernels[call.kernel].made.func.params
        pairs = zip(call.arguments, parameters, strict=True)
        tensors = (filled.tensor(_owner(place, form.form, each, copy), parameter) for each, parameter in pairs)
        yield LibraryCall(_symbol(place, call.kernel), tuple(tensors))


def _owner(place: int, form: LayoutForm, argument: Argument, copy: int) -> tuple[str | int, ...]:
    """Return whose memory an argument is: inputs are those of both forms, weights those of a copy."""
    match argument.kind:
        case "input":
            return (argument.kind, argument.index)
        case "weight":
            return (place, argument.kind, argument.index, copy)
        case "buffer":
            return (place, argument.kind, form.plan.buffers[argument.index].storage)
        case _:
            return (place, argument.kind, argument.index)


def _symbol(place: int, kernel: str) -> str:
    return f"form{place}_{kernel}"
