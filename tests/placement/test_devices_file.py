"""`devices.toml`: what it says, and the errors of what it must not say."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.devices.__main__ import SERVER
from fusion.errors import OptionError
from placement.devices import Work
from placement.devices_file import read_devices

CPU = '[[device]]\nname = "cpu"\ngflops = { other = 100 }\ngbs = 10\nmemory_gb = 1\n'
GPU = CPU.replace('"cpu"', '"gpu"').replace("other = 100", "other = 1000, matmul = 4000") + "start_us = 5\n"
LINK = '[[link]]\nbetween = ["cpu", "gpu"]\nlatency_us = 10\ngbs = 4\n'


def write(folder: Path, text: str) -> Path:
    path = folder / "devices.toml"
    path.write_text(text)
    return path


def test_what_it_says(tmp_path: Path) -> None:
    topology = read_devices(write(tmp_path, CPU + 'source = "its data sheet"\n' + GPU + LINK))
    cpu, gpu = topology.devices
    assert (cpu.name, gpu.name, cpu.memory) == ("cpu", "gpu", 1e9)
    assert (cpu.source, gpu.source) == ("its data sheet", "devices.toml")
    matmul, sum_of_two = Work("matmul", 8e9, 1e6), Work("add", 1e6, 12e6)
    assert (cpu.seconds(matmul), gpu.seconds(matmul)) == pytest.approx((8e-2, 2e-3 + 5e-6))
    assert (cpu.seconds(sum_of_two), gpu.seconds(sum_of_two)) == pytest.approx((1.2e-3, 1.2e-3 + 5e-6))
    assert topology.links[0][1].seconds(4e6) == topology.links[1][0].seconds(4e6) == pytest.approx(1e-3 + 1e-5)


def test_the_example_of_the_bench() -> None:
    assert [device.name for device in read_devices(SERVER).devices] == ["cpu", "v100", "a10"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[device", "no TOML"),
        ("", "it names no device"),
        (CPU.replace("[[device]]", "[[devices]]"), "devices is unknown"),
        (CPU.replace("memory_gb", "memory"), "memory is unknown"),
        (CPU.replace("= 100 ", "= 100, matmull = 3 "), "gflops.matmull is unknown"),
        (CPU.replace("memory_gb = 1", "memory_gb = 16e9"), r"up to 1e\+07, in 1e9 bytes"),
        ("device = []", "it names no device"),
        ("device = 3", "device is no list"),
        ("device = [3]", "no table"),
        (CPU + "speed = 3\n", "speed is unknown"),
        (CPU.replace("gbs = 10\n", ""), "gbs is missing"),
        (CPU.replace("gbs = 10", "gbs = 0"), "gbs is 0"),
        (CPU.replace("gbs = 10", "gbs = -1"), "gbs is -1"),
        (CPU.replace("gbs = 10", "gbs = nan"), "gbs is nan"),
        (CPU.replace("gbs = 10", "gbs = true"), "gbs is True"),
        (CPU.replace("other = 100", "matmul = 100"), "no speed for other work"),
        (CPU.replace("= 100 ", '= "fast" '), "gflops.other is 'fast'"),
        (CPU.replace('"cpu"', "3"), "its name is 3"),
        (CPU + "source = 3\n", "its source is 3"),
        (CPU + CPU, "the same name"),
        (CPU + GPU, "no link is between cpu and gpu"),
        (CPU + GPU + LINK.replace('"gpu"', '"tpu"'), "it is between"),
        (CPU + GPU + LINK.replace('"gpu"', '"cpu"'), "it is between"),
        (CPU + GPU + LINK + LINK.replace("= 4", "= 5"), "between cpu and gpu already"),
        (CPU + GPU + LINK + LINK.replace('"cpu", "gpu"', '"gpu", "cpu"'), "between gpu and cpu already"),
        (CPU + GPU + LINK.replace("latency_us = 10\n", ""), "latency_us is missing"),
    ],
)
def test_what_it_must_not_say(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(OptionError, match=said):
        read_devices(write(tmp_path, text))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"cannot read .*none\.toml"):
        read_devices(tmp_path / "none.toml")
