"""The seam between the core, which knows no machine, and backends, each of which knows one.

A backend is a folder and one object that `registry` finds by its name. The core asks it for a `KernelCompiler`, which
is bound to a target and a number of threads, and asks that whatever depends on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:  # a machine that only loads modules has none of the compiler
    import numpy as np
    import onnx
    import tvm
    from tvm import relax, tirx

    from backends.machine_limits import MachineLimits
    from backends.memory_costs import MemoryCosts
    from backends.tensorir.estimate import Estimate
    from backends.tensorir.legalize.common import FLegalize
    from backends.tensorir.result import Scheduled
    from backends.tensorir.space import Choices, Point

Load = Callable[[Mapping[str, "tirx.PrimFunc"]], Any]
"""Makes a library of kernels by their names, which runs in this process."""


class Lowering(Protocol):
    """Writes one kind of operator as a TensorIR call that a template of the backend recognises.

    Attributes:
        name: For notes.
    """

    @property
    def name(self) -> str: ...

    def concerns(self, builder: relax.BlockBuilder, call: relax.Call) -> bool:
        """Return whether `call` has the form that the template computes; where not, nobody asks why."""
        ...

    def apply(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Return `call` as TensorIR.

        Raises:
            Declined: The template does not take it; `explain()` shows the reason.
        """
        ...


class LayoutPolicy(Protocol):
    """What storing a tensor in one order or another costs on a machine."""

    def move_cycles(self, elements: int) -> float:
        """Return what a transpose of so many float32 elements takes."""
        ...

    def padding_cycles(self, rows: int, columns: int) -> float:
        """Return what a product of weights loses by the part of its last vectors that `columns` leave empty."""
        ...

    def has_row_major_kernel(self, call: relax.Call) -> bool:
        """Return whether a window over images of which each channel is apart has a kernel for N, C, H, W storage."""
        ...


class RoundingPolicy(Protocol):
    """Where operands in bfloat16, and sums in float32, are faster than all in float32."""

    def takes_batches(self, right: Sequence[int]) -> bool:
        """Return whether the right operand of a product of batches, of this shape, may be bfloat16."""
        ...

    def takes_convolution(self, call: relax.Call) -> bool:
        """Return whether a convolution with constant weights is faster so."""
        ...

    def stays_near(self, size: int) -> bool:
        """Return whether a tensor of `size` bytes is still in a core's caches when the next kernel reads it."""
        ...


class ObjectCache(Protocol):
    """Keeps the object files of kernels between compilations."""

    def key(self, symbol: tvm.ir.GlobalVar, func: tirx.PrimFunc) -> str | None:
        """Return the key of a kernel; None for a function that is made for one model."""
        ...

    def find(self, key: str) -> bytes | None:
        """Return the object file of a kernel, None where there is none."""
        ...

    def keep(self, key: str, code: bytes) -> None:
        """Keep the object file of a kernel."""
        ...

    def make_room(self) -> None:
        """Drop what was used longest ago, where too much is kept."""
        ...


class ObjectWriter(Protocol):
    """Writes the code of kernels with loops, and of what calls them, as object files."""

    def begin(self, name: str, kernel: tirx.PrimFunc) -> None:
        """Have the code of a kernel written while the caller works on; it may turn out that nobody needs it."""
        ...

    def finish(self, mod: tvm.IRModule) -> list[Path]:
        """Return the files of all functions of `mod`, to be linked in this order; what was begun of them is not written
        again."""
        ...


class KernelCompiler(Protocol):
    """Writes the kernels of one target, for a number of threads.

    Attributes:
        target: With all fields filled in.
        device: What runs the code, where that is no CPU, such as "sm_80 (A100 SXM 80 GB)"; "" for CPUs. Its code is
            `device_code`, for a run starts kernels one by one, in memory of the device's own.
        features: Names of the instruction sets that code may use.
        threads: Worker threads at run time.
        half_dtypes: Types of 16 bits that products are made of as they are; of the others products are widened.
        machine: What it knows of the machine, a dataclass of plain values: part of the keys of caches.
        layouts: What the order of a tensor's axes in memory is chosen by.
        rounding: What operands are rounded to bfloat16 by.
        memory: What kernels are formed and parts of concatenations placed by.
        lowerings: By operator, in the order they are tried; what none takes is legalized.
        legalizations: TensorIR forms of operators, in place of TVM's.
        safe_legalizations: Those of them in whose place TVM's would read or write outside of a tensor, or trap.
    """

    @property
    def target(self) -> tvm.target.Target: ...

    @property
    def device(self) -> str: ...

    @property
    def features(self) -> frozenset[str]: ...

    @property
    def threads(self) -> int: ...

    @property
    def half_dtypes(self) -> frozenset[str]: ...

    @property
    def machine(self) -> Any: ...

    @property
    def layouts(self) -> LayoutPolicy: ...

    @property
    def rounding(self) -> RoundingPolicy: ...

    @property
    def memory(self) -> MemoryCosts: ...

    @property
    def lowerings(self) -> Mapping[str, Sequence[Lowering]]: ...

    @property
    def legalizations(self) -> Mapping[str, FLegalize]: ...

    @property
    def safe_legalizations(self) -> Mapping[str, FLegalize]: ...

    def why_not_precision(self, precision: str) -> str:
        """Return why the machine has no instructions for operands of `precision`; "" where it has."""
        ...

    def at_precision(self, precision: str) -> KernelCompiler:
        """Return what writes kernels whose products take their operands so, where no dtype in the graph says it."""
        ...

    def with_libraries(self, names: Sequence[str]) -> KernelCompiler:
        """Return what gives these, each a `DeviceLibrary` of the target's kind, the kernels that they take."""
        ...

    def why_not_taken(self, kernel: tirx.PrimFunc) -> str:
        """Return why no template takes `kernel`, but plain loops; "" where one does."""
        ...

    def why_not_fused(self, kernel: tirx.PrimFunc) -> str:
        """Return why what `kernel` computes is faster in several kernels; "" where it is not."""
        ...

    def estimate_fusion(self, kernel: tirx.PrimFunc) -> Estimate | None:
        """Return what `kernel`, which has several anchors, and its parts are estimated to take; None where no template
        takes it."""
        ...

    def choices(self, kernel: tirx.PrimFunc) -> Choices | None:
        """Return what the template that takes `kernel` leaves open; None where that is nothing."""
        ...

    def schedule(self, kernel: tirx.PrimFunc, point: Point | None = None, *, plain: bool = False) -> Scheduled:
        """Return `kernel` with its loops. Never raises for a valid PrimFunc.

        Args:
            point: One of its `choices`; None for the default.
            plain: Leave it the loops that TVM gives it.
        """
        ...

    def generate_module(self, kernels: tvm.IRModule) -> tvm.runtime.Module:
        """Return the code of kernels with loops as one module, which can run without a linker."""
        ...

    def object_writer(self, folder: Path, kept: ObjectCache | None) -> AbstractContextManager[ObjectWriter]:
        """Return what writes object files to `folder`; those of kernels that are `kept` are taken from there."""
        ...

    def device_code(self, kernels: Mapping[str, tirx.PrimFunc]) -> bytes:
        """Return the code of kernels with loops for the `device`, and how each is started: what a saved module holds.

        Raises:
            NotInstalledError: What makes it is not there.
        """
        ...

    def foreign(self) -> str:
        """Return in which way the target is not this machine; "" where it is, and kernels can be measured."""
        ...

    def describe(self) -> dict[str, str]:
        """Return what `fusion doctor` says of the machine, by short names."""
        ...

    def private_bytes(self) -> int:
        """Return what the caches hold that no two threads share."""
        ...

    def nominal_limits(self) -> MachineLimits:
        """Return the limits of machines of the target's kind, from data sheets."""
        ...

    def estimate_us(self, cycles: float) -> float:
        """Return the microseconds of so many cycles on such a machine."""
        ...

    def measure_limits(self, load: Load) -> MachineLimits:
        """Return the limits of this machine, measured; takes about two seconds."""
        ...


class Subgraph(Protocol):
    """A subgraph that can be run, for as long as somebody holds it."""

    @property
    def inputs(self) -> Sequence[tuple[str, str]]:
        """Names, and types as the library writes them."""
        ...


class ModelRunner(Protocol):
    """A library that runs ONNX models, and what of them no kernels are written for.

    Attributes:
        versions: By domain, the set of operators that a node of it is from where the model does not say.
    """

    @property
    def versions(self) -> Mapping[str, int]: ...

    def prepare(self, model: onnx.ModelProto) -> bytes:
        """Return `model` as bytes that `register` takes, and that run without ending the process.

        Raises:
            UnsupportedOperatorError: The library lacks an operator or its type.
        """
        ...

    def refusal_of(self, model: onnx.ModelProto) -> str:
        """Return why the library refuses `model`, or "" where it takes it. Nothing of it is computed."""
        ...

    def output_types(self, model: onnx.ModelProto) -> dict[str, tuple[str, Sequence[int | str | None]]]:
        """Return type and shape of each output of `model`, as the library infers and writes them; nothing where it does
        not take the model."""
        ...

    def register(self, key: str, data: bytes, threads: int) -> Subgraph:
        """Let compiled code call what `prepare` returned as `RUN_SUBGRAPH` with its key, while the result is held.

        Raises:
            UnsupportedOperatorError: The library does not take it.
        """
        ...

    def run(self, subgraph: Any, values: Sequence[Any]) -> list[Any]:
        """Return what a registered subgraph makes of arrays, lists of them (sequences) or None (empty optionals).

        Raises:
            ExecutionError: It fails.
        """
        ...


Open = Callable[[Sequence["np.ndarray"]], Sequence["np.ndarray"]]
"""Runs a subgraph on arrays."""


@runtime_checkable
class Library(Protocol):
    """Runs parts of a graph that its patterns match, by code of its own.

    Its name is that of its entry point: by that it is asked for (`fusion.compile(backends=...)`, where it is used only
    if it is named), and found again by what was compiled or saved with it.

    Attributes:
        patterns: What it takes, as TVM's patterns with a check each; their names begin with that of the library.
    """

    @property
    def patterns(self) -> Sequence[relax.transform.FusionPattern]: ...

    def export(self, function: relax.Function) -> bytes:
        """Return what `open` needs to run `function`, which one of the patterns matched: weights are constants in it,
        all shapes are static. A saved module holds it."""
        ...

    def open(self, data: bytes, threads: int) -> Open:
        """Return what runs a subgraph of `export`. Its results have the dtypes and shapes of those of the function."""
        ...


@runtime_checkable
class VersionedLibrary(Library, Protocol):
    """A `Library` that tells its version, so that what is measured of it can be kept: it is a candidate for each match
    of its patterns.

    Attributes:
        version: As for a `GraphLibrary`.
    """

    @property
    def version(self) -> str: ...


@runtime_checkable
class GraphLibrary(Protocol):
    """Runs regions of a graph, as many operators together as it takes, by code of its own.

    Its name, and where that is asked for and found again, are as for a `Library`.

    Attributes:
        version: Of its code: what was measured of another says nothing of this. To ask for it raises where the code is
            not there. Better not to import it for that: an import may end the process, and takes time.
    """

    @property
    def version(self) -> str: ...

    def why_not_taken(self, call: relax.Call) -> str:
        """Return why it does not run `call`, of which all shapes are static; "" where it does."""
        ...

    def export(self, function: relax.Function) -> bytes:
        """Return what `open` needs to run `function`, all calls of which it takes: as for a `Library`."""
        ...

    def open(self, data: bytes, threads: int) -> Open:
        """Return what runs a region of `export`, in calls from several threads at a time. Its results have the dtypes
        and shapes of those of the function; between two calls its threads sleep."""
        ...


RegionLibrary = GraphLibrary | VersionedLibrary
"""What may be given regions of a graph."""


@runtime_checkable
class DeviceLibrary(Protocol):
    """Runs kernels on a device, in the place of loops, inside of a run there. The backend of the device knows how; its
    name, and where that is asked for, are as for a `Library`.

    Attributes:
        kinds: TVM's names of the kinds of targets whose kernels it runs.
        version: Of its code; to ask for it raises where it is not installed.
    """

    @property
    def kinds(self) -> tuple[str, ...]: ...

    @property
    def version(self) -> str: ...


@runtime_checkable
class Backend(Protocol):
    """A machine that kernels are written for.

    Attributes:
        kinds: TVM's names of the kinds of targets that it writes kernels for.
    """

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def compiler(self, fields: Mapping[str, object], threads: int) -> KernelCompiler:
        """Return what writes kernels for the target of these fields.

        Raises:
            TargetError: There is no such machine.
        """
        ...
