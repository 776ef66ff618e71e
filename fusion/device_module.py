"""`DeviceModule`: what `fusion.compile` returns for a list of devices."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fusion.compiled_module import CompiledModule, items_of
from fusion.context import Context
from fusion.devices.device_program import DeviceProgram
from fusion.devices.explain import explain_devices, plans_dict
from fusion.devices.make_program import make_program
from fusion.devices.targets import DeviceTarget
from fusion.errors import OptionError
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.module.copy_item import copy_item
from fusion.module.settings import Settings
from fusion.module.specialization import Specialization


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
        fallbacks = ["", f"on ONNX Runtime: {nodes} nodes"] if nodes else []
        notes = ["", "notes:", *(f"  {note}" for note in self._form.notes)] if self._form.notes else []
        return "\n".join([explain_devices(self._program.plans, objective), *fallbacks, *notes])

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

    def explain_html(self, path: str | Path, **options: Any) -> NoReturn:
        """There is no page of several devices yet.

        Raises:
            OptionError: Always.
        """
        raise OptionError(
            "there is no page of a module that is divided among devices",
            hint='use explain(), or compile the model with target="llvm"',
        )
