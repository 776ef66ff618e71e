"""The protocols between the core, which knows no machine, and the backends, each of which knows one.

A backend is a folder with one object, which `registry` finds by name. The core asks it for a `KernelCompiler`, bound to
a target and a number of threads, and gets every fact and every choice that depends on the machine from that.
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
"""Compiles kernels, given by name, into a library that is loaded into this process."""


class Lowering(Protocol):
    """Rewrites calls of one Relax operator as `call_tir` of a PrimFunc that one of the backend's templates recognises.

    Attributes:
        name: The name used in the notes of `explain()`.
    """

    @property
    def name(self) -> str: ...

    def concerns(self, builder: relax.BlockBuilder, call: relax.Call) -> bool:
        """Return whether the template is meant for `call`; if not, it is passed over without a note in `explain()`."""
        ...

    def apply(self, builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
        """Return `call` as TensorIR.

        Raises:
            Declined: The template does not support it; `explain()` shows the reason.
        """
        ...


class LayoutPolicy(Protocol):
    """What it costs on a machine to store a tensor in one layout or another."""

    def move_cycles(self, elements: int) -> float:
        """Return the cycles of a transpose of `elements` float32 values."""
        ...

    def padding_cycles(self, rows: int, columns: int) -> float:
        """Return the cycles that a product of `rows` rows with weights of `columns` columns wastes on empty lanes of
        the last vector of each row."""
        ...

    def why_not_channels_last(self, call: relax.Call, weights: relax.Expr) -> str:
        """Return why a convolution of N, C, spatial, or its transpose, by `weights` runs as it is; "" where it runs
        channels-last, as there is an anchor for it that reads weights of OIHW, which TVM has no other form for."""
        ...

    def has_row_major_kernel(self, call: relax.Call) -> bool:
        """Return whether there is an NCHW kernel for `call`, a window operator that keeps channels apart (a depthwise
        convolution or a pooling)."""
        ...


class RoundingPolicy(Protocol):
    """Where operands of 16 bits with float32 sums are faster than float32 throughout."""

    def takes_batches(self, right: Sequence[int]) -> bool:
        """Return whether a batched matmul whose right operand has the shape `right` is faster with that in bfloat16."""
        ...

    def takes_convolution(self, call: relax.Call) -> bool:
        """Return whether a convolution with constant weights is faster in bfloat16."""
        ...

    def why_not_narrow(self, call: relax.Call) -> str:
        """Return why a matmul or a convolution of 16-bit numbers, with a result in float32, is to multiply float32
        instead; "" if it is to stay."""
        ...

    def stays_near(self, size: int) -> bool:
        """Return whether a tensor of `size` bytes is still in a core's caches when the next kernel reads it."""
        ...


class ObjectCache(Protocol):
    """A cache of the object files of kernels, kept between compilations."""

    def key(self, symbol: tvm.ir.GlobalVar, func: tirx.PrimFunc) -> str | None:
        """Return the key of a kernel; None for a function that only one model has, which is not worth keeping."""
        ...

    def find(self, key: str) -> bytes | None:
        """Return the object file kept under `key`; None if there is none."""
        ...

    def keep(self, key: str, code: bytes) -> None:
        """Keep `code`, the object file of a kernel, under `key`."""
        ...

    def make_room(self) -> None:
        """Delete the least recently used files while the cache is over its size limit."""
        ...


class ObjectWriter(Protocol):
    """Compiles scheduled kernels, and the functions that call them, to object files."""

    def begin(self, name: str, kernel: tirx.PrimFunc) -> None:
        """Start to compile a kernel in the background. `finish` need not ask for it."""
        ...

    def finish(self, mod: tvm.IRModule) -> list[Path]:
        """Compile all functions of `mod` that have not been begun, and return the object files of all, to be linked in
        this order."""
        ...


class KernelCompiler(Protocol):
    """Schedules and compiles kernels for one target and one number of threads.

    Attributes:
        target: The target, with all its fields filled in.
        device: The device, such as "sm_80 (A100 SXM 80 GB)", if it is no CPU; "" for CPUs. Code of a device comes from
            `device_code` in place of `object_writer`: a run launches its kernels one by one, on the device's memory.
        features: Names of the instruction sets that the code may use.
        threads: Worker threads at run time.
        byte_products: The dtypes of both operands for which there are kernels of products of bytes by constant ones,
            summed in int32, in the order in which they are tried: uint8 by int8, or int16 that hold bytes without their
            zero points; () where there are none.
        machine: The facts of the machine that kernels depend on, a dataclass of plain values; part of cache keys.
        layouts: The costs by which the layout of each tensor is chosen.
        rounding: Which operators are rounded to bfloat16 under precision="bf16", and which of 16 bits are widened.
        memory: The costs of memory traffic by which groups are formed and concatenations are placed.
        lowerings: For each Relax operator, the lowerings to try, in order. An operator that all decline is legalized.
        legalizations: Functions that give operators a TensorIR form, used in place of TVM's legalizations.
        safe_legalizations: The subset of these whose TVM counterparts could read or write out of bounds, or trap.
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
    def byte_products(self) -> tuple[tuple[str, str], ...]: ...

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
        """Return why the machine cannot multiply operands of `precision`; "" if it can."""
        ...

    def at_precision(self, precision: str) -> KernelCompiler:
        """Return a compiler whose kernels round the float32 operands of products to `precision`, for precisions that no
        dtype of the graph expresses ("tf32")."""
        ...

    def with_libraries(self, names: Sequence[str]) -> KernelCompiler:
        """Return a compiler that leaves kernels to these libraries, each a `DeviceLibrary` for the target's kind, where
        they support them."""
        ...

    def why_not_taken(self, kernel: tirx.PrimFunc) -> str:
        """Return why `kernel` would get plain loops, as no template supports it; "" if one does."""
        ...

    def why_not_fused(self, kernel: tirx.PrimFunc) -> str:
        """Return why `kernel` is slower than its parts as kernels of their own; "" if it is not."""
        ...

    def estimate_fusion(self, kernel: tirx.PrimFunc) -> Estimate | None:
        """Return the estimated times of `kernel`, which has several anchors, and of its parts as kernels of their own;
        None if no template supports it."""
        ...

    def choices(self, kernel: tirx.PrimFunc) -> Choices | None:
        """Return the schedule space of `kernel`; None if its template has only one schedule for it."""
        ...

    def schedule(self, kernel: tirx.PrimFunc, point: Point | None = None, *, plain: bool = False) -> Scheduled:
        """Return `kernel` scheduled. Never raises for a valid PrimFunc.

        Args:
            point: The point of `choices(kernel)` to use; None for the default.
            plain: Whether to use TVM's own loops, without any template.
        """
        ...

    def generate_module(self, kernels: tvm.IRModule) -> tvm.runtime.Module:
        """Compile scheduled kernels in memory. The module runs in this process and needs no linker."""
        ...

    def object_writer(self, folder: Path, kept: ObjectCache | None) -> AbstractContextManager[ObjectWriter]:
        """Return a writer of object files into `folder`, which takes kernels from the cache `kept` where it can."""
        ...

    def device_code(self, kernels: Mapping[str, tirx.PrimFunc]) -> bytes:
        """Compile scheduled kernels for the `device`; return their code and launch parameters as a saved module stores
        them.

        Raises:
            NotInstalledError: The device's compiler is not installed.
        """
        ...

    def foreign(self) -> str:
        """Return how the target differs from this machine; "" if it does not, and kernels can be measured."""
        ...

    def describe(self) -> dict[str, str]:
        """Return what `fusion doctor` prints about the machine: short label -> text."""
        ...

    def private_bytes(self) -> int:
        """Return the bytes of the private caches of all `threads` together."""
        ...

    def nominal_limits(self) -> MachineLimits:
        """Return the peak rates of machines of this kind, from data sheets."""
        ...

    def estimate_us(self, cycles: float) -> float:
        """Return the microseconds that `cycles` take on such a machine."""
        ...

    def measure_limits(self, load: Load) -> MachineLimits:
        """Measure the peak rates of this machine, which takes about two seconds."""
        ...


class Subgraph(Protocol):
    """A registered subgraph. Compiled code can call it for as long as this object is alive."""

    @property
    def inputs(self) -> Sequence[tuple[str, str]]:
        """The inputs: (name, type as the library spells it)."""
        ...


class ModelRunner(Protocol):
    """The library that runs ONNX models, whole or the parts for which there are no kernels.

    Attributes:
        versions: For each domain, the opset version to assume for its nodes if the model does not state one.
    """

    @property
    def versions(self) -> Mapping[str, int]: ...

    def prepare(self, model: onnx.ModelProto) -> bytes:
        """Return `model` serialised for `register`, checked so that running it cannot end the process.

        Raises:
            UnsupportedOperatorError: The library lacks an operator, or does not support its types.
        """
        ...

    def refusal_of(self, model: onnx.ModelProto) -> str:
        """Return why the library refuses `model`; "" if it accepts it. The model is loaded, not run."""
        ...

    def output_types(self, model: onnx.ModelProto) -> dict[str, tuple[str, Sequence[int | str | None]]]:
        """Return the type and shape of each output of `model`, as the library infers and spells them; an empty dict if
        it refuses the model."""
        ...

    def register(self, key: str, data: bytes, threads: int) -> Subgraph:
        """Register what `prepare` returned. Compiled code can call it, by `RUN_SUBGRAPH` with this key, for as long as
        the result is alive.

        Raises:
            UnsupportedOperatorError: The library refuses it.
        """
        ...

    def run(self, subgraph: Any, values: Sequence[Any]) -> list[Any]:
        """Run a registered subgraph on arrays, lists of arrays (sequences) and None (empty optionals).

        Raises:
            ExecutionError: The library fails.
        """
        ...


Open = Callable[[Sequence["np.ndarray"]], Sequence["np.ndarray"]]
"""A loaded subgraph: inputs -> outputs."""


@runtime_checkable
class Library(Protocol):
    """A library that runs the subgraphs that its patterns match, by code of its own.

    Its name is that of its entry point. It is used only if `fusion.compile(backends=...)` names it, and compiled and
    saved modules find it again by that name.

    Attributes:
        patterns: The subgraphs that it supports, as TVM's fusion patterns, each with a check. The name of a pattern
            begins with the name of the library.
    """

    @property
    def patterns(self) -> Sequence[relax.transform.FusionPattern]: ...

    def export(self, function: relax.Function) -> bytes:
        """Serialise `function`, a subgraph that one of the patterns matched, for `open`: its weights are constants, its
        shapes are static. Saved modules store the bytes."""
        ...

    def open(self, data: bytes, threads: int) -> Open:
        """Load what `export` returned. The outputs have the dtypes and shapes of those of the function."""
        ...


@runtime_checkable
class VersionedLibrary(Library, Protocol):
    """A `Library` that states its version, so that measurements of it can be kept and each match of its patterns can be
    compared with other backends.

    Attributes:
        version: See `GraphLibrary`.
    """

    @property
    def version(self) -> str: ...


@runtime_checkable
class GraphLibrary(Protocol):
    """A library that runs regions of a graph, as many supported operators together as there are, by code of its own.

    It is named, and found again, as a `Library` is.

    Attributes:
        version: The version of its code; measurements of another version do not count. Reading it raises if the code is
            not installed. It should be read from the package's metadata: an import takes time and may crash.
    """

    @property
    def version(self) -> str: ...

    def why_not_taken(self, call: relax.Call) -> str:
        """Return why the library does not support `call`, whose shapes are static; "" if it does."""
        ...

    def export(self, function: relax.Function) -> bytes:
        """Serialise `function`, a region whose calls are all supported, for `open`; see `Library.export`."""
        ...

    def open(self, data: bytes, threads: int) -> Open:
        """Load what `export` returned. Several threads may call the result at a time; its outputs have the dtypes and
        shapes of those of the function, and its worker threads must sleep, not spin, between calls."""
        ...


RegionLibrary = GraphLibrary | VersionedLibrary
"""The libraries that can run regions of a graph."""


@runtime_checkable
class DeviceLibrary(Protocol):
    """A library that runs single kernels on a device in place of generated code. The backend of the device has the code
    that calls it; it is named as a `Library` is.

    Attributes:
        kinds: The target kinds, as TVM names them, that it has kernels for.
        version: The version of its code. Reading it raises if the code is not installed.
    """

    @property
    def kinds(self) -> tuple[str, ...]: ...

    @property
    def version(self) -> str: ...


@runtime_checkable
class Backend(Protocol):
    """A kind of machine that fusion generates kernels for.

    Attributes:
        kinds: The target kinds, as TVM names them, that it compiles for.
    """

    @property
    def kinds(self) -> tuple[str, ...]: ...

    def compiler(self, fields: Mapping[str, object], threads: int) -> KernelCompiler:
        """Return the compiler for one target.

        Args:
            fields: The fields of a TVM target.
            threads: Worker threads at run time.

        Raises:
            TargetError: The fields describe no machine that is known.
        """
        ...
