"""What kernels take on devices by their code and published figures, and what commands show of it, without a device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm.relax import op

from backends.cuda.codegen.count_traffic import count_traffic
from backends.cuda.devices import A100, DEVICES
from backends.cuda.kernels.matmul.kernels import emit_matmul
from backends.cuda.kernels.matmul.plan import TileShape
from backends.cuda.kernels.pointwise.emit import emit_pointwise
from backends.cuda.runtime.cubin import read_resources
from fusion.report.device_plan import known_devices
from tests.backends.cpu.kernels.memory_bound import prim_func
from tests.backends.cuda.multiplied import plan_of
from tests.cli.commands import run, run_json

DEVICES_FILE = """
[[device]]
name = "first"
figures = "sm_80"
[[device]]
name = "second"
figures = "sm_90"
[[link]]
between = ["first", "second"]
latency_us = 10
gbs = 25
"""


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_elementwise_kernels_ask_for_each_element_once(dtype: str) -> None:
    x = np.zeros((4, 1024), dtype)
    traffic = count_traffic(emit_pointwise(prim_func(lambda b, x, y: op.add(x, y), [x, x])))
    assert (traffic.thread_bytes, traffic.l2_bytes, traffic.multiplies) == (3 * x.nbytes, x.nbytes, "")


@pytest.mark.parametrize(
    ("dtype", "tfloat32", "said"),
    [("float16", False, "float16"), ("float32", True, "tfloat32"), ("float32", False, "")],
)
def test_products_bring_their_tiles_past_l1(dtype: str, tfloat32: bool, said: str) -> None:
    x, tile = np.zeros((128, 256), dtype), TileShape(32, 64, 64 // np.dtype(dtype).itemsize, 16, 32, stages=3)
    func = prim_func(lambda b, x, y: op.matmul(x, op.permute_dims(y)), [x, x])
    (kernel,) = emit_matmul(func, plan_of(func, tile, tfloat32=tfloat32))
    traffic = count_traffic(kernel)
    stored = 128 * 128 * x.itemsize
    prologue = 8 * (tile.stages - 1) / (256 / tile.depth)
    # Where it is not unrolled, the loop's copies count in its last turns too, behind a condition.
    brought = 8 * (tile.rows + tile.columns) * 256 * x.itemsize
    assert brought <= traffic.l2_bytes - stored <= brought * (1 + prologue / 8)
    assert traffic.multiplies == said


@pytest.mark.parametrize("data", [b"", b"FAKE CUBIN", b"\x7fELF", b"\x7fELF" + bytes(100)])
def test_what_is_no_cubin_has_no_resources(data: bytes) -> None:
    assert read_resources(data, "kernel") is None


def test_a_file_for_devices_is_explained_where_there_is_none(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, page = saved["feed_forward"], tmp_path / "page.html"
    code, told, _ = run(capsys, "explain", path, "--html", page)
    assert code == 0
    for arch, device in DEVICES.items():
        assert f"by published figures of {device.name} ({arch}), not run:" in told
        assert f'"device":"{device.name}"' in page.read_text()
    _, data = run_json(capsys, "explain", path)
    (form,) = data["forms"]
    assert {part["backend"] for part in form["placement"]["parts"]} == {"cuda"}
    assert form["devices"].keys() == form["kernels"].keys()
    for name, works in form["devices"].items():
        slower, faster = (work["roofline_us"] for work in works)
        assert slower > faster > 0
        kernel = form["kernels"][name]
        own = kernel["cycles"] / A100.clock_hz * 1e6
        assert (own > 0) == ("product" in kernel["template"])
        assert kernel["estimate_us"] == (own or slower)
    assert "\ncompiled for sm_80 and sm_90 (loops of A100 SXM 80 GB)\n" in f"\n{told}"
    assert "what their tiles were chosen by" in told
    code, _, error = run(capsys, "run", path)
    assert code != 0
    assert "F501" in error


def test_a_file_of_devices_may_name_the_figures_of_one(
    saved: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "devices.toml"
    file.write_text(DEVICES_FILE)
    code, plan = run_json(capsys, "plan", saved["feed_forward"], "--devices", file)
    assert code == 0
    assert [device["device"] for device in plan["devices"]] == ["first", "second"]
    rates = known_devices("tf32")["sm_80"].gflops
    assert rates == {"other": A100.float32_gflops, "matmul": A100.tfloat32_gflops, "convolution": A100.tfloat32_gflops}
    file.write_text(DEVICES_FILE.replace("sm_90", "sm_70"))
    _, _, error = run(capsys, "plan", saved["feed_forward"], "--devices", file)
    assert "no figures of 'sm_70'" in error
    assert "sm_80, sm_90" in error
