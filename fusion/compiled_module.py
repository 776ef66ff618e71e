"""`CompiledModule`: what `fusion.compile` and `fusion.load` return."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fusion.errors import InputError, OptionError
from fusion.module.copy_item import copy_item
from fusion.module.foreign_program import ForeignProgram
from fusion.module.input_slot import to_value
from fusion.module.offload_program import OffloadProgram
from fusion.module.open_form import OpenForm
from fusion.module.overrides import Overrides
from fusion.module.random_inputs import inputs_of_shapes, random_inputs
from fusion.module.settings import Settings
from fusion.module.specialization import Specialization
from fusion.module.specializations import Specializations, split_forms
from fusion.module.stream import stream
from fusion.options import check_flag, check_seconds, check_threads
from fusion.signature import TensorSpec
from fusion.system.cpus import allowed_cpus
from fusion.system.forks import Lock
from fusion.threads import require_threads

if TYPE_CHECKING:
    from fusion.module.read_saved import Saved
    from fusion.report.placement import ModelPlacement
    from fusion.report.profile import Profile


class CompiledModule:
    """A compiled model. Calls from several threads run at a time and return what they would return one by one.

    Attributes:
        inputs, outputs: Names, shapes and dtypes; a dimension is None where the model leaves it open.
        settings: For which machine it was compiled.
    """

    def __init__(
        self,
        inputs: tuple[TensorSpec, ...],
        outputs: tuple[TensorSpec, ...],
        settings: Settings,
        *,
        fixed: Specialization | None = None,
        forms: Specializations | None = None,
        overrides: Overrides | None = None,
    ) -> None:
        """Exactly one of `fixed` (every shape is known) and `forms` (compiled per shape) is given."""
        self.inputs = inputs
        self.outputs = outputs
        self.settings = settings
        self._fixed = fixed
        self._forms = forms if forms is not None else Specializations(inputs, None, () if fixed is None else (fixed,))
        self._overrides = overrides
        self._names = tuple(spec.name for spec in inputs)
        self._output_names = tuple(spec.name for spec in outputs)
        self._saving = Lock()

    def __call__(self, *arrays: Any, wait: bool | None = None, stream: Any = None) -> tuple[np.ndarray, ...]:
        """Return the outputs for `arrays`, one for each input, in the order of `inputs`. See `run`."""
        if len(arrays) != len(self._names):
            raise self._wrong_count(len(arrays))
        if wait is not None:
            check_flag("wait", wait)
        if stream is not None:
            return self._run_on(arrays, stream)
        if self._fixed is not None:
            return self._fixed.program.run(arrays)
        return self._forms.program(arrays, wait).run(arrays)

    def run(self, inputs: Mapping[str, Any], *, wait: bool | None = None, stream: Any = None) -> dict[str, np.ndarray]:
        """Return the outputs by name for `inputs`, arrays by name.

        Arrays are NumPy's or any other that speak DLPack and lie on the CPU. Those that are contiguous are read in
        place. Each output is a new array. A value for one of `overridable` takes the place of the weight in this call;
        the first call with other weights than before compiles the model with these as inputs.

        A module of a CUDA device takes arrays on that device too, in place: then its outputs stay there and speak
        DLPack (`torch.from_dlpack`), and the call returns before they are computed. Until then nothing may write to the
        inputs but what is behind the run on its stream.

        Args:
            wait: Whether to wait until the model is compiled for these shapes where they are new; None for what
                `compile` was given. With False ONNX Runtime answers meanwhile, where it can.
            stream: Of the caller, in whose order a run on a CUDA device is: a handle, or an object of PyTorch or CuPy.
                None is the default stream of CUDA where an input is on the device, else one of the module's own.

        Raises:
            InputError: A name is missing or unknown; an array has the wrong rank, shape or dtype, or is on another
                device.
            ExecutionError: The run failed.
            LimitError: There is no memory for what a run writes to.
            OptionError: `wait` is no bool; `stream` is no stream, or the module runs on no CUDA device.
            TargetError: The module is for a machine of another kind.
            FusionError: The shapes are new, and the model cannot be compiled for them: as `fusion.compile`.
        """
        try:
            arrays = [inputs[name] for name in self._names]
        except Exception:  # a name is missing, or whatever a mapping of the caller's own raises
            raise self._wrong_names(inputs) from None
        if len(inputs) != len(arrays):
            return self._overriding(inputs).run(inputs, wait=wait, stream=stream)
        return dict(zip(self._output_names, self(*arrays, wait=wait, stream=stream)))  # noqa: B905 -- strict takes 0.5 us

    def map(self, inputs: Iterable[Any], workers: int | None = None) -> Generator[Any, None, None]:
        """Yield the outputs for each of `inputs`, in order, from several runs at a time: each takes longer than alone,
        and more are done in a second.

        Each item is what `run` takes, arrays by name, and its result a dict; or what a call takes, a tuple of arrays or
        the only one, and its result a tuple. At most twice as many items as there are workers are taken ahead, in the
        thread that takes the results; their arrays are copied, so that a generator may write the next item into the
        memory of the last. An error comes in the place of a result, those of `inputs` too, and is the end.
        Closing the generator waits for the runs under way and starts no others.

        Args:
            workers: How many runs at a time; None for as many as this process may use CPUs.

        Raises:
            InputError: `inputs` is no iterable.
            OptionError: `workers` is no number of threads, or more than the system lets this process start.
            ResourceError: Of the generator: the system lets this process start no thread, or the process ends.
        """
        check_threads(workers, "workers")
        count = workers or allowed_cpus()
        require_threads(count)
        items = items_of(inputs, "map")
        return stream(self._run_item, map(copy_item, items), count)

    def _run_item(self, item: Any) -> Any:
        if isinstance(item, Mapping):
            return self.run(item)
        return self(*item) if isinstance(item, tuple) else self(item)

    @property
    def overridable(self) -> tuple[TensorSpec, ...]:
        """The weights that `run` takes other values for, as ONNX Runtime does: those that an ONNX model of version 4 or
        newer lists among its inputs too. None of a module that was loaded or copied."""
        return self._overrides.specs() if self._overrides is not None else ()

    def _overriding(self, inputs: Mapping[str, Any]) -> CompiledModule:
        """Return the module that takes `inputs`, which are more than the inputs of this one."""
        more = [name for name in inputs if name not in self._names]
        module = self._overrides.module(more) if self._overrides is not None else None
        if module is None:
            raise self._wrong_names(inputs)
        return module

    def save(self, path: str | Path) -> None:
        """Write the module to `path` as one file, which `fusion.load` reads. A dynamic one keeps the forms it has so
        far; those that are being made are waited for.

        Raises:
            SavedFileError: There is no linker, or the file cannot be written.
        """
        from fusion.module.save import save

        self._forms.finish()
        with self._saving:
            save(self, path)

    def __reduce__(self) -> tuple[Callable[[bytes], CompiledModule], tuple[bytes]]:
        """Pickle the bytes that `save` writes. As they hold machine code, unpickle only what you trust.

        Raises:
            SavedFileError: As `save` does.
        """
        from fusion.module.save import to_bytes

        self._forms.finish()
        with self._saving:
            return _unpickle, (to_bytes(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        """Return a module with buffers and weights of its own, which can run while this one does.

        One with open dimensions goes on compiling for new shapes, which an unpickled one cannot.

        Raises:
            SavedFileError: There is no linker.
        """
        from fusion.module.save import to_bytes

        self._forms.finish()
        with self._saving:
            if not self.specializations:
                return CompiledModule(self.inputs, self.outputs, self.settings, forms=self._forms.renewed(()))
            other = _unpickle(to_bytes(self))
            if self.dynamic:
                other._forms = self._forms.renewed(other.specializations)
            return other

    def __copy__(self) -> CompiledModule:
        """Return what `copy.deepcopy` does: two modules never share what a run writes to."""
        return self.__deepcopy__({})

    def __repr__(self) -> str:
        """Return inputs, outputs, target, threads and numbers of kernels and fallback nodes in one line or two."""
        from fusion.report.explain import summary

        return summary(self)

    def finish(self) -> None:
        """Make the form for all sizes, unless it is made or the model has none, and wait for forms that are being made:
        the first call need not wait then. `specializations` and `under_way` tell what came of it."""
        self._forms.finish()

    def explain(self) -> str:
        """Return what the module consists of: kernels with their operators, fallbacks with their reasons, notes. Forms
        that are being made are waited for."""
        from fusion.report.explain import explain

        self._forms.finish()
        return explain(self)

    def explain_html(self, path: str | Path, *, title: str = "model", profile: Profile | None = None) -> None:
        """Write `path`, a page that needs nothing else: the graph before and after fusion, to be searched and clicked.

        Args:
            title: What the page calls the model.
            profile: Of this module, to show measured times; without it they are estimates.

        Raises:
            OptionError: The file cannot be written.
            ShapeError: The module has open dimensions and has not been called.
        """
        from fusion.report.page import write_page

        self._forms.finish()
        write_page(self, path, title, profile)

    def profile(self, inputs: Any = None, *, seconds: float = 2.0) -> Profile:
        """Return the time of each kernel in a run on `inputs`, random ones if None.

        In place of an array there may be a shape, a tuple of sizes: `profile({"x": (1, 3, 480, 640)})` draws an array
        of that, and those of inputs with dimensions of the same names. Of a module with one input
        `profile((1, 3, 480, 640))` will do.

        Whole runs and single kernels are repeated for about `seconds` each, and the machine's own limits are measured
        in about 2 s, where the cache on disk does not have them.

        Raises:
            InputError, ExecutionError: As `run` does.
            NotInstalledError: The machine's limits are not known yet, and measuring them takes the compiler.
            OptionError: `seconds` is no number of seconds, or more than an hour; or the module runs on a CUDA device.
            ShapeError: `inputs` is None, and the module has open dimensions and has not been called; or it lacks the
                shape of an input.
        """
        from fusion.report.profile import profile

        check_seconds(seconds)
        if self.settings.device:
            raise OptionError(
                "kernels of a CUDA device are not timed yet",
                why="a profile compares with the limits of this machine's CPU",
                hint="explain() has their estimates; NVIDIA's nsys times them",
            )
        self._forms.finish()
        values = random_inputs(self._known_inputs()) if inputs is None else inputs_of_shapes(self.inputs, inputs)
        self.run(values, wait=True)
        arrays = [to_value(values[spec.name], spec) for spec in self.inputs]
        form = self._fixed if self._fixed is not None else self._forms.form_of(arrays)
        return profile(form, arrays, self.settings.threads, seconds)

    def _known_inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs with the shapes of the form used last, or typical ones of that for all sizes."""
        forms = self.specializations
        return forms[-1].typical_inputs if forms else self.inputs

    @property
    def bounds(self) -> Mapping[str, range]:
        """The sizes of open dimensions by name, as `compile` was told them: others are an error of a call."""
        return self._forms.bounds

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        """The compiled forms: one, or one for each input shape made so far."""
        return self._forms.all()

    @property
    def placement(self) -> ModelPlacement:
        """Where the model runs, and why there: each part with its operators, backend and time, and the fastest other
        backend with its time, as far as they were measured. Of a module with open dimensions, that of the form made
        last; of one that has none yet, without parts: its text says what answers calls meanwhile."""
        from fusion.report.placement import NoFormYet, placement_of

        forms = self.specializations
        return placement_of(forms[-1], self.settings.generator) if forms else NoFormYet(told=self._forms.outlook())

    @property
    def under_way(self) -> list[str]:
        """The shapes that the model is being compiled for, and those for which that failed, a sentence each."""
        return self._forms.under_way()

    @property
    def refused(self) -> bool:
        """Whether there are shapes for which the model could not be compiled when it was called with them."""
        return self._forms.refused

    @property
    def dynamic(self) -> bool:
        """Whether the module is compiled anew for each new input shape."""
        return self._fixed is None

    def _run_on(self, arrays: Sequence[Any], stream: Any) -> tuple[np.ndarray, ...]:
        """Return the outputs of a run in the order of the caller's stream.

        Raises:
            OptionError: The module runs on no device that has streams.
        """
        program = None if self._fixed is None else self._fixed.program
        if isinstance(program, OffloadProgram):
            return program.run_on(arrays, stream)
        if isinstance(program, ForeignProgram):
            return program.run(arrays)
        hint = 'leave it out, or compile the model with target="cuda"'
        raise OptionError("stream= is of a CUDA device", why="the module runs on CPUs", hint=hint)

    def _wrong_count(self, count: int) -> InputError:
        return InputError(
            f"the module takes {len(self._names)} arrays and got {count}",
            why=f"its inputs are {', '.join(self._names) or 'none'}",
            hint="pass one array for each input, in this order",
        )

    def _wrong_names(self, inputs: Any) -> InputError:
        takes = ", ".join(f"{name!r}" for name in self._names) or "none"
        if not isinstance(inputs, Mapping):
            return InputError(
                f"run takes a dict of arrays by input name, got {type(inputs).__name__}",
                why=f"the inputs are {takes}",
                hint="call the module itself to pass arrays by position: module(array)",
            )
        missing = [repr(name) for name in self._names if name not in inputs]
        unknown = [repr(name) for name in inputs if name not in self._names]
        parts = [
            f"{label} {', '.join(names)}" for label, names in (("missing", missing), ("unknown", unknown)) if names
        ]
        return InputError(
            f"wrong input names: {'; '.join(parts)}", why=f"the inputs are {takes}", hint="use these names"
        )


def items_of(inputs: Any, method: str) -> Iterator[Any]:
    """Return the items of what `method` was given.

    Raises:
        InputError: It is no iterable, or the inputs of one run.
    """
    if isinstance(inputs, Mapping):
        raise InputError(
            f"{method} takes a series of inputs, got those of one run", hint="call `run`, or give a list of such dicts"
        )
    try:
        return iter(inputs)
    except TypeError as error:
        raise InputError(
            f"{method} takes an iterable of inputs, got {type(inputs).__name__}",
            hint="give a list or a generator of what `run` takes, or a call",
        ) from error


def restore(saved: Saved) -> CompiledModule:
    """Return the module of these parts. One with open dimensions runs with the shapes of its forms only."""
    if not saved.dynamic:
        return CompiledModule(saved.inputs, saved.outputs, saved.settings, fixed=saved.forms[0])
    opened, each = split_forms(saved.forms)
    forms = Specializations(saved.inputs, None, each, opened=OpenForm(None, opened), bounds=saved.bounds)
    return CompiledModule(saved.inputs, saved.outputs, saved.settings, forms=forms)


def _unpickle(data: bytes) -> CompiledModule:
    """Return the module that `save` would have written as `data`; its weights are a copy of those in there.

    Raises:
        SavedFileError, TargetError: As `load` does.
    """
    from fusion.module.archive import Archive
    from fusion.module.read_saved import read_saved

    return restore(read_saved(Archive(Path("the pickled module"), data)))
