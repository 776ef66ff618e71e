"""`DeviceModule`: what `fusion.compile` returns for a list of devices."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from fusion.compiled_module import CompiledModule, items_of
from fusion.context import Context
from fusion.counted import counted
from fusion.devices.device_program import DeviceProgram
from fusion.devices.draw_plans import write_stages_page
from fusion.devices.explain import explain_devices, plans_dict
from fusion.devices.make_program import make_program
from fusion.devices.profile import DevicesProfile, profile_devices
from fusion.devices.targets import DeviceTarget
from fusion.errors import OptionError
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.module.copy_item import copy_item
from fusion.module.input_slot import to_value
from fusion.module.random_inputs import inputs_of_shapes, random_inputs
from fusion.module.settings import Settings
from fusion.module.specialization import Specialization
from fusion.options import check_seconds
from fusion.report.placement import ModelPlacement
from fusion.report.profile import sizes_of

if TYPE_CHECKING:
    from fusion.report.profile import Profile


def divide(
    imported: ImportedModel, lowered: Lowered | None, ctx: Context, *, devices: tuple[DeviceTarget, ...]
) -> Specialization:
    """Return the form of a model that is divided among `devices`.

    Raises:
        OptionError: All of it runs on ONNX Runtime.
    """
    if lowered is None:
        raise OptionError(
            "the model cannot be divided among devices",
            why="all of it runs on ONNX Runtime",
            hint='use target="llvm"',
        )
    graph = lowered.graph
    return Specialization(
        inputs=imported.inputs,
        outputs=imported.outputs,
        program=make_program(imported, lowered, devices, ctx),
        code=None,
        kernels=lowered.kernels,
        fallbacks=imported.fallbacks,
        subgraphs={},
        notes=(*imported.notes, *lowered.notes),
        graph=lambda: graph,
    )


class DeviceModule(CompiledModule):
    """A model that runs on several devices. A call runs by the plan for latency, `stream` by that for throughput."""

    def __init__(self, form: Specialization, settings: Settings) -> None:
        """`form` is what `divide` returned."""
        super().__init__(form.inputs, form.outputs, settings, fixed=form)
        assert isinstance(form.program, DeviceProgram)
        self._form, self._program = form, form.program

    @property
    def plans(self) -> dict[str, Any]:
        """What `explain` says, as plain data by objective."""
        return plans_dict(self._program.plans)

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        """Yield the outputs for each of `inputs`, in order, while the stages of the model work on several of them.

        Each item is what `run` takes, arrays by name, and its result a dict; or what a call takes, a tuple of arrays or
        the only one, and its result a tuple. At most two items for each stage are taken ahead (of several replicas of
        the model more, so that none waits for the slowest), in the thread that takes the results, and one alone where
        the next result is there; their arrays are copied. An error comes in the place of a result, and is the end: that
        of a stage names it and its device, and the requests under way that have no result. To close the generator waits
        for the stages that are running, and ends their threads.

        Raises:
            InputError: `inputs` is no iterable; of the generator, an item does not fit the model.
            FusionError: Of the generator: a stage failed, or its thread cannot be started or bound to its CPUs.
        """
        return self._stream(items_of(inputs, "stream"))

    def _stream(self, items: Iterator[Any]) -> Generator[Any, None, None]:
        named: list[bool] = []  # of the items under way, the oldest first

        def arrays() -> Iterator[Sequence[Any]]:
            for item in map(copy_item, items):
                named.append(isinstance(item, Mapping))
                yield self._arrays_of(item)

        results = self._program.stream(arrays())
        try:
            for outputs in results:
                yield dict(zip(self._output_names, outputs, strict=True)) if named.pop(0) else outputs
        finally:
            results.close()

    def _arrays_of(self, item: Any) -> Sequence[Any]:
        if not isinstance(item, Mapping):
            arrays = item if isinstance(item, tuple) else (item,)
            if len(arrays) != len(self._names):
                raise self._wrong_count(len(arrays))
            return arrays
        if set(item) != set(self._names):
            raise self._wrong_names(item)
        return [item[name] for name in self._names]

    def explain(self, objective: str | None = None) -> str:
        """Return which device runs which kernels and why, beside the bound: for one request and for streams, or for the
        `objective` alone, "latency" or "throughput"."""
        nodes = len(self._form.fallbacks)
        fallbacks = ["", f"on ONNX Runtime: {counted(nodes, 'node')}"] if nodes else []
        notes = ["", "notes:", *(f"  {note}" for note in self._form.notes)] if self._form.notes else []
        return "\n".join([explain_devices(self._program.plans, objective), *fallbacks, *notes])

    @property
    def placement(self) -> ModelPlacement:
        """Where a call runs: each part with the device of its stage."""
        whole, plans = super().placement, self._program.plans
        stage_of = {task: stage for stage in plans.once.stages for task in stage.tasks}
        device_of = {
            name: plans.devices[stage_of[task].device].name for task, names in enumerate(plans.names) for name in names
        }
        calls = [call for call in self._form.graph().calls if call.kind != "input"]
        named = (
            replace(part, device=device_of.get(call.name, "")) for part, call in zip(whole.parts, calls, strict=True)
        )
        return replace(whole, parts=tuple(named))

    def profile(self, inputs: Any = None, *, seconds: float = 2.0) -> DevicesProfile:
        """Return what each stage takes on its device, what a call takes, and a request of a stream, beside what the
        plans expect; see `CompiledModule.profile` for what is given and raised. `seconds` are those of each of the
        three."""
        check_seconds(seconds)
        values = random_inputs(self.inputs) if inputs is None else inputs_of_shapes(self.inputs, inputs)
        self.run(values)
        arrays = [to_value(values[spec.name], spec) for spec in self.inputs]
        return profile_devices(self._program, arrays, sizes_of(self._form, arrays), seconds)

    def __repr__(self) -> str:
        """Return the devices and the numbers of stages in one line."""
        plans = self._program.plans
        devices = ", ".join(device.name for device in plans.devices)
        return f"<DeviceModule on {devices}: {len(plans.once.stages)} stages a call, {len(plans.many.stages)} a stream>"

    def save(self, path: str | Path) -> NoReturn:
        """A module for several devices cannot be saved yet.

        Raises:
            OptionError: Always.
        """
        raise OptionError(
            "a module that is divided among devices cannot be saved, copied or pickled",
            why="the file would be for this machine's CPUs by number",
            hint='compile the model with target="llvm" and save that',
        )

    def __reduce__(self) -> NoReturn:
        """Raise what `save` does."""
        self.save("")

    def __deepcopy__(self, memo: dict[int, Any]) -> NoReturn:
        """Raise what `save` does."""
        self.save("")

    def explain_html(
        self, path: str | Path, *, title: str = "model", profile: Profile | None = None, objective: str | None = None
    ) -> None:
        """Write `path`, a page that needs nothing else: when each device computes and each link copies by the plans,
        or by that for `objective`, against the bound; and what `explain` says of the stages.

        Raises:
            OptionError: The file cannot be written, or there is a `profile`, which the page has no place for.
        """
        if profile is not None:
            raise OptionError("the page of a divided model shows plans", hint="print the profile; leave profile= out")
        write_stages_page(self._program.plans, Path(path), title, objective)
