"""Records that tests write and read."""

from __future__ import annotations

from tuning.record import Record
from tuning.task import KERNEL, Environment, TuningTask

HERE = Environment('{"kind":"llvm"}', "a CPU", 2, {"apache-tvm": "1", "backends": "ab"})


def task(name: str, environment: Environment = HERE) -> TuningTask:
    return TuningTask(KERNEL, "conv2d", name, (("float32", (1, 13, 11, 20)),), environment)


def record(
    of: TuningTask, chunks: int = 1, *, seconds: float = 1e-3, wins: bool = False, measured_at: float = 1000.0
) -> Record:
    return Record(
        task=of,
        point={"tile.height": 2, "chunks": chunks},
        seconds=seconds,
        spread=1e-5,
        runs=20,
        default_s=2e-3,
        wins=wins,
        measured_at=measured_at,
    )
