"""What kernels take on devices by published figures, as tables: nothing was run, and no device has to be there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from backends.device_run import DeviceWork
from backends.registry import device_runtime
from fusion.module.settings import Settings
from fusion.module.specialization import Specialization
from fusion.report.table import format_table, number, shorten

_HEADER = (
    "kernel", "launches", "blocks", "threads", "registers", "shared KB", "local B", "occupancy", "L2 MB", "threads MB",
    "roofline us", "bound by",
)  # fmt: skip
_UNITS = (
    "registers, shared KB, local B (spilled), occupancy: of the machine code; L2 MB: what goes through L2; threads MB: "
    "what threads ask L1 and shared\nmemory for, at most; roofline us: by operations, memory and L2, without waves of "
    "blocks, exponentials and the start of kernels"
)


def device_work(form: Specialization, settings: Settings) -> Mapping[str, Sequence[DeviceWork]]:
    """Return what each kernel of a form takes on each device whose figures are known; nothing for kernels of a CPU."""
    if not settings.device or form.code is None:
        return {}
    return device_runtime(settings.kind).estimate(form.code.library(), form.kernels)


def work_tables(works: Mapping[str, Sequence[DeviceWork]]) -> list[str]:
    """Return a table for each device, and what the columns are."""
    devices = {work.device: work.arch for each in works.values() for work in each}
    lines = []
    for device, arch in devices.items():
        rows = [_row(name, work) for name, each in works.items() for work in each if work.device == device]
        lines += ["", f"by published figures of {device} ({arch}), not run:", format_table(_HEADER, rows)]
    return [*lines, _UNITS] if lines else []


def _row(name: str, work: DeviceWork) -> tuple[str, ...]:
    shared = None if work.shared_bytes is None else work.shared_bytes / 1024
    asked = None if work.thread_bytes is None else work.thread_bytes / 1e6
    return (
        shorten(name, 48), str(work.launches), number(work.blocks, "d"), number(work.threads, "d"),
        number(work.registers, "d"), number(shared, ".1f"), number(work.local_bytes, "d"),
        number(work.occupancy, ".0%"), f"{work.l2_bytes / 1e6:.2f}", number(asked, ".2f"),
        f"{work.roofline_us:.2f}", work.bound,
    )  # fmt: skip
