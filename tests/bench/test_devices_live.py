"""`python -m bench.devices.live`: its processes, and its report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from bench.devices.live import MODULE, Divided, calls_by_turns, text
from bench.remote import EngineError, RemoteProcess
from fusion.system.cpus import cpu_numbers
from tests.module import small_models

DEADLINE_S = 120.0


def test_processes_measure(tmp_path: Path) -> None:
    path, cpu = tmp_path / "mlp.onnx", cpu_numbers()[0]
    onnx.save(small_models.mlp(), path)
    inputs = [{"x": np.full((3, 8), value, np.float32)} for value in (1.0, 2.0)]
    with RemoteProcess(MODULE) as process, RemoteProcess(MODULE) as other:
        for each, where in ((process, [f"llvm:{cpu}"]), (other, cpu)):
            each.ask(DEADLINE_S, "compile", path, {}, "fast", where)
            each.ask(DEADLINE_S, "take", inputs)
        expected, stream = process.ask(DEADLINE_S, "plans")
        assert set(expected) == {"latency", "throughput"}
        assert stream == "1 stages"
        for found, given in zip(process.ask(DEADLINE_S, "outputs"), inputs, strict=True):
            np.testing.assert_allclose(found["y"], small_models.mlp_numpy(given["x"]), rtol=1e-4, atol=1e-4)
        assert process.ask(DEADLINE_S, "stream", 0.01) > 0
        for each in (process, other):
            each.begin("calls", 0.01)
        assert all(each.end(DEADLINE_S) > 0 for each in (process, other))
        assert min(calls_by_turns((process, other), 0.01)) > 0
        with pytest.raises(EngineError, match="nothing"):
            process.ask(DEADLINE_S, "nothing")


def test_report() -> None:
    found = Divided("net", {"latency": 4.0, "throughput": 2.0}, stream="2 replicas", right=True)
    found.streamed, found.together, found.call, found.alone = [400.0], [500.0], [4.0], [5.0]
    (row,) = [line for line in text([found]).splitlines() if "net" in line]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "net", "2 replicas", "400.0", "500.0", "0.800", "2.000", "2.500", "-20.0%", "2.00", "2.00", "+0.0%", "4.000",
        "5.000", "0.800", "1.00", "yes",
    ]  # fmt: skip
