"""Lists of devices as users write them."""

from __future__ import annotations

import pytest

import fusion
from fusion.devices.targets import parse_devices
from fusion.errors import FusionError, OptionError, ShapeError, TargetError
from fusion.system.cpus import cpu_numbers
from tests.module import small_models

CPU = cpu_numbers()[0]


def test_sets_of_cpus() -> None:
    (device,) = parse_devices([f"llvm:{CPU}"])
    assert device.cpus == (CPU,)
    assert parse_devices([f"llvm:{CPU}-{CPU}"])[0].threads == 1
    assert parse_devices([f"llvm:{CPU}?memory=3M"])[0].memory == 3 << 20
    assert parse_devices(["llvm?memory=3M"])[0].cpus == tuple(cpu_numbers())
    others = [cpu for cpu in cpu_numbers() if cpu != CPU]
    if others:
        assert [device.cpus for device in parse_devices(["llvm", f"llvm:{CPU}"])] == [tuple(others), (CPU,)]


@pytest.mark.parametrize(
    ("targets", "told"),
    [
        ([], "at least one"),
        (["llvm", "llvm?memory=1G"], "has no CPUs"),
        (["llvm:0-0", "devices.toml"], "--devices FILE"),
        (f"llvm:{CPU}-{CPU}", f"target=.'llvm:{CPU}-{CPU}'"),
        ("rpc://host:9090/key", "names a device"),
        (["llvm:"], "cannot read the CPUs"),
        (["llvm:3-1"], "cannot read the CPUs"),
        (["llvm:0-0 -mcpu=znver4"], "cannot read the CPUs"),
        ([f"llvm:{CPU}-{CPU}", f"llvm:{CPU}"], "two devices"),
        (["llvm:0-99999"], "may not use"),
        ([f"llvm:{CPU}?memory=1.5G"], "cannot read the limit"),
        ([f"llvm:{CPU}?"], "it names none"),
        ([f"llvm:{CPU}?timeout=3"], "'timeout' is no limit that it has"),
        ([f"llvm:{CPU}?memory=1G&memory=2G"], "given twice"),
        ([f"llvm:{CPU}?memory=0M"], "cannot read the limit"),
        (["opencl:0"], "unknown kind"),
        (["rpc://host:9090"], "cannot read the device"),
        (["rpc://host/key"], "cannot read the device"),
        (["rpc://host:port/key"], "cannot read the device"),
        (["rpc://host:9090/key?timeout=0"], "cannot read the limit"),
        (["rpc://host:9090/key", "rpc://host:9090/other"], "two devices are one server"),
        (["cuda:"], "cannot read the device"),
        (["cuda:0?memory=1"], "cannot read the limit"),
        (["cuda:0", "cuda:0?memory=1G"], "two devices are one"),
        (["cuda:0", "rpc://host:9090/key"], "cannot share a model"),
        ([3], "named by a string"),
    ],
)
def test_what_is_no_device_is_told(targets: list[str] | str, told: str) -> None:
    with pytest.raises(TargetError, match=told):
        fusion.compile(small_models.mlp(), target=targets)


@pytest.mark.parametrize(
    ("options", "error"), [({"threads": 2}, OptionError), ({"shapes": {"x": ("batch", 8)}}, ShapeError)]
)
def test_options_that_devices_do_not_take(options: dict[str, object], error: type[FusionError]) -> None:
    with pytest.raises(error):
        fusion.compile(small_models.mlp("batch"), target=[f"llvm:{CPU}"], **options)
