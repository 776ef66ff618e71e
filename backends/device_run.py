"""What a run of a model starts on a device, as plain data: kernels one after another, and where their tensors lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from backends.kernel import KernelInfo
from fusion.errors import TargetError
from fusion.signature import TensorSpec


@dataclass(frozen=True)
class DevicePlace:
    """Where a tensor lies, at its beginning.

    Attributes:
        kind: "input", "weight", "storage" (of activations) or "result", memory that is new in each run.
        index: Which of the kind.
    """

    kind: str
    index: int


@dataclass(frozen=True)
class KernelStart:
    """A PrimFunc of `KernelCompiler.device_code` and its tensors, in the order of its parameters."""

    kernel: str
    tensors: tuple[DevicePlace, ...]


@dataclass(frozen=True)
class RunResult:
    """An output of a run.

    Attributes:
        place: Where the kernels leave it.
        is_own: Whether that is a "result" that no other output has, so that the caller may have the memory.
    """

    place: DevicePlace
    shape: tuple[int, ...]
    dtype: str
    is_own: bool


@dataclass(frozen=True)
class DeviceRun:
    """A run.

    Attributes:
        inputs: Of which all shapes are known.
        storages: Bytes of each; what never lives at a time shares one.
        results: Bytes of each "result".
        starts: In order.
        outputs: In order.
    """

    inputs: tuple[TensorSpec, ...]
    storages: tuple[int, ...]
    results: tuple[int, ...]
    starts: tuple[KernelStart, ...]
    outputs: tuple[RunResult, ...]


@dataclass(frozen=True)
class DeviceWork:
    """What one call of a kernel takes on a device, by its code and published figures: nothing was run.

    Attributes:
        device, arch: Whose.
        launches: One after another; of a library's call, one.
        blocks, threads: Of the largest grid, and of the largest block; None of a library's call, as all that only its
            code tells.
        registers: Of a thread, the most of the launches; None where there is no machine code for the device.
        shared_bytes: Of a block, likewise.
        local_bytes: Of a thread, in memory, likewise: what is spilled.
        occupancy: The least share of the device's threads that its blocks fill, likewise.
        l2_bytes: That go through L2, whatever the caches before it have.
        thread_bytes: That threads ask for of shared and global memory, at most: lanes of one address each count.
        roofline_us: The longest of the times that operations, memory and L2 take, on the multiprocessors that have a
            block (Williams, Waterman, Patterson 2009); the start of a kernel comes on top.
        bound: What sets it: "compute", "memory" or "L2".
    """

    device: str
    arch: str
    launches: int
    blocks: int | None
    threads: int | None
    registers: int | None
    shared_bytes: int | None
    local_bytes: int | None
    occupancy: float | None
    l2_bytes: int
    thread_bytes: int | None
    roofline_us: float
    bound: str


@dataclass(frozen=True)
class DeviceFigures:
    """What a data sheet says of a device.

    Attributes:
        name: Its maker's.
        arch: What code for it is made for.
        gflops: By the operands of products: "fp32", "tf32" and "bf16".
        gbs: Of its memory, in 1e9 bytes per second.
        memory_bytes: Of its memory.
        start_us: What one kernel more takes: assumed, not published.
        source: Where the figures are from.
    """

    name: str
    arch: str
    gflops: Mapping[str, float]
    gbs: float
    memory_bytes: int
    start_us: float
    source: str


class DeviceExecutable(Protocol):
    """Code, weights and memory of a model on one device. Threads may run it at a time."""

    def receive(self, value: Any, spec: TensorSpec, stream: Any) -> Any:
        """Return an array on the device as a tensor with `shape`, `ndim` and `dtype`, for the same `stream` as the run;
        None for what lies elsewhere and may be read here.

        Raises:
            InputError: It is on another device.
        """
        ...

    def run(self, values: Sequence[Any], stream: Any) -> tuple[Any, ...]:
        """Return the outputs for arrays of NumPy, or what `receive` returned: NumPy's where all are, otherwise tensors
        on the device, which speak DLPack, and behind which kernels may still run.

        Args:
            stream: The caller's, in whose order the run is; None for one of the module's own, or where an array is on
                the device, its default one.
        """
        ...


class DeviceRuntime(Protocol):
    """Runs `KernelCompiler.device_code` on the devices of this machine, without any compiler."""

    def describe(self) -> dict[str, str]:
        """Return the devices by names that targets know, or why there are none."""
        ...

    def figures(self) -> Sequence[DeviceFigures]:
        """Return those of the devices that are known by their data sheets, here or not."""
        ...

    def target_of(self, ordinals: Sequence[int]) -> str:
        """Return the target of the devices of these numbers.

        Raises:
            TargetError: There is no such device.
        """
        ...

    def refusal(self, archs: Sequence[str], ordinal: int | None = None) -> TargetError | None:
        """Return why no device here, or not the one of this number, runs code for `archs`; None where one does."""
        ...

    def estimate(self, code: bytes, kernels: Mapping[str, KernelInfo]) -> Mapping[str, Sequence[DeviceWork]]:
        """Return what kernels take on the devices whose figures are known; no device has to be there.

        Raises:
            ValueError: The code is damaged.
        """
        ...

    def load(
        self, code: bytes, run: DeviceRun, weights: Sequence[Any], ordinal: int | None = None
    ) -> DeviceExecutable:
        """Return the code on a device, with its memory.

        Args:
            weights: Tensors of this process.

        Raises:
            TargetError: No device runs it.
            LimitError: Its memory does not suffice.
            ValueError: The code is damaged.
        """
        ...
