"""What the figures of devices allow a kernel."""

from __future__ import annotations

import pytest

from backends.cuda.devices import A100, DEVICES, H100, CudaDevice


@pytest.mark.parametrize(
    ("device", "threads", "registers", "shared", "blocks"),
    [
        (A100, 256, 32, 0, 8),  # the threads are all taken
        (A100, 256, 33, 0, 6),  # 1,280 registers a warp: rounded up to a multiple of 256
        (A100, 256, 255, 0, 1),
        (A100, 1024, 65, 0, 0),  # not even one block has its registers
        (A100, 32, 16, 0, 32),  # as many blocks as an SM takes
        (A100, 128, 32, 48 << 10, 3),
        (H100, 128, 32, 48 << 10, 4),
        (A100, 128, 32, 164 << 10, 0),
        (H100, 128, 32, 227 << 10, 1),
        (A100, 33, 32, 0, 32),
    ],
)
def test_what_runs_out_first_says_how_many_blocks(
    device: CudaDevice, threads: int, registers: int, shared: int, blocks: int
) -> None:
    assert device.blocks_at_once(threads, registers, shared) == blocks
    assert device.occupancy(threads, registers, shared) == blocks * -(-threads // 32) * 32 / 2048


def test_the_larger_of_both_times_is_the_floor() -> None:
    moving = A100.floor(1e6, 2039 * 10**6)
    assert (moving.bound, moving.seconds) == ("memory", pytest.approx(1e-3))
    computing = H100.floor(67e9, 10**6)
    assert (computing.bound, computing.seconds) == ("compute", pytest.approx(1e-3))
    assert H100.floor(67e9, 10**6, H100.float16_gflops).seconds < computing.seconds / 10


@pytest.mark.parametrize("device", DEVICES.values(), ids=str)
def test_each_figure_has_a_source_and_agrees_with_the_others(device: CudaDevice) -> None:
    assert "data sheet" in device.source
    assert 1.3e9 < device.clock_hz < 2.0e9
    assert device.gbs < device.l2_gbs * device.sms < device.shared_gbs * device.sms
    assert device.block_shared_bytes == device.shared_bytes - 1024
