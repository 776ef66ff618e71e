"""A model compiled for concrete input shapes: its program and everything known of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from backends.kernel import KernelInfo
from fusion.model_graph import ModelGraph
from fusion.module.open_plan import OpenRunPlan
from fusion.module.plan import RunPlan
from fusion.module.program import Program
from fusion.placement_times import PlacementTimes
from fusion.runtime import Tensor
from fusion.signature import FallbackNode, TensorSpec

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Code:
    """The kernels of a form, as they are saved.

    Attributes:
        plan: The calls of kernels and the buffers they run in.
        weights: What kernels take beside inputs and buffers.
        library: Returns the bytes of the shared library.
        linked: Whether it is linked, so that getting it cannot fail.
        opened: The plan of a form for all sizes, of which `plan` is at typical ones.
    """

    plan: RunPlan
    weights: tuple[Tensor, ...]
    library: Callable[[], bytes]
    linked: bool = False
    opened: OpenRunPlan | None = None


@dataclass(frozen=True)
class Specialization:
    """One compiled form of a model.

    Attributes:
        inputs, outputs: The signature, without unknown dimensions where there is code, unless it is for all sizes.
        program: What runs.
        code: None for a model that is wholly a fallback.
        kernels: What is known of each kernel, by name.
        fallbacks, subgraphs: As in `ImportedModel`.
        notes: What the frontend left out and what passes declined to do, and why.
        graph: Returns the model before and after, which `explain` shows.
        times: What was measured of where it runs.
        is_limited: Whether a process with more memory may make one for more sizes.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    program: Program
    code: Code | None
    kernels: Mapping[str, KernelInfo]
    fallbacks: tuple[FallbackNode, ...]
    subgraphs: Mapping[str, bytes]
    notes: tuple[str, ...]
    graph: Callable[[], ModelGraph] = ModelGraph
    times: PlacementTimes = field(default_factory=PlacementTimes)
    is_limited: bool = False

    @property
    def opened(self) -> OpenRunPlan | None:
        """The plan of a form for all sizes; None for one that is for the shapes of its inputs alone."""
        return None if self.code is None else self.code.opened

    def kernels_at(self, shapes: Shapes) -> Mapping[str, KernelInfo]:
        """Return `kernels` with what they do where the inputs have these shapes."""
        sizes = None if self.opened is None else self.opened.sizes(shapes)
        if self.opened is None or sizes is None:
            return self.kernels
        known = self.opened.dims.all_sizes(sizes)
        return {name: info.at(known) for name, info in self.kernels.items()}

    @property
    def typical_inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs, of a form for all sizes at those where its memory is planned."""
        plan = self.opened
        if plan is None:
            return self.inputs
        shapes = plan.dims.shapes(plan.typical_sizes)
        return tuple(TensorSpec(spec.name, shapes[spec.name], spec.dtype, spec.axes) for spec in self.inputs)
