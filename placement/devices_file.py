"""Reads `devices.toml`: machines that are not here.

    [[device]]
    name = "gpu"
    gflops = { other = 14000, matmul = 28000 }
    gbs = 900
    memory_gb = 16
    start_us = 4          # 0 if not given
    source = "data sheet" # where the figures are from; the file if not given

    [[device]]
    name = "known"
    figures = "sm_80"     # those of a data sheet that a backend knows, in place of all above

    [[link]]              # for each two of them
    between = ["cpu", "gpu"]
    latency_us = 10
    gbs = 15.75
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fusion.errors import OptionError
from fusion.system.files import read_file
from placement.devices import OTHER, Device, Link, Topology

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_DEVICE = ("name", "gflops", "gbs", "memory_gb")
_LINK = ("between", "latency_us", "gbs")
_KINDS = (OTHER, "matmul", "convolution")
_UNITS = {
    "gflops": ("1e9 operations per second", 1e9),
    "gbs": ("1e9 bytes per second", 1e8),
    "memory_gb": ("1e9 bytes", 1e7),
    "start_us": ("microseconds", 1e8),
    "latency_us": ("microseconds", 1e8),
}
"""What numbers are in, and more than any device has: so large are those that were written in other units."""


def read_devices(path: Path, known: Mapping[str, Device] = MappingProxyType({})) -> Topology:
    """Return the devices of a file, in its order.

    Args:
        known: Devices whose figures a file may name.

    Raises:
        OptionError: The file cannot be read, or says too little, something unknown, or something impossible.
    """
    try:
        data = tomllib.loads(read_file(path).decode())
    except OSError as error:
        raise OptionError(f"cannot read {path}", why=str(error.strerror), hint="name a file of devices") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{path} is no TOML", why=str(error)) from error
    table = _Table(path, "the file", data)
    table.check((), ("device", "link"))
    listed = enumerate(table.tables("device"), 1)
    devices = tuple(_device(_Table(path, f"[[device]] {number}", each), known) for number, each in listed)
    if not devices:
        raise table.error("it names no device", "write a [[device]] for each")
    names = [device.name for device in devices]
    if len(set(names)) < len(names):
        raise table.error("two devices have the same name", "give each its own")
    return Topology(devices, _links(table, names))


class _Table:
    """A table of the file, with what errors say of it."""

    def __init__(self, path: Path, where: str, data: Any) -> None:
        self.path, self._where = path, where
        if not isinstance(data, dict):
            raise self.error("it is no table", "write [[device]] and [[link]]")
        self._data: Mapping[str, Any] = data

    def error(self, why: str, hint: str) -> OptionError:
        """Return the error of this table."""
        return OptionError(f"cannot read the devices of {self.path}", where=self._where, why=why, hint=hint)

    def check(self, needed: Collection[str], more: Collection[str] = ()) -> None:
        """Refuse what is missing or unknown."""
        for name in self._data:  # first: what is missing may be misspelt
            if name not in (*needed, *more):
                raise self.error(f"{name} is unknown", f"known are {', '.join((*needed, *more))}")
        for name in needed:
            if name not in self._data:
                raise self.error(f"{name} is missing", f"it needs {', '.join(needed)}")

    def tables(self, name: str) -> list[Any]:
        """Return the tables of this name."""
        found = self._data.get(name, [])
        if not isinstance(found, list):
            raise self.error(f"{name} is no list", f"write [[{name}]]")
        return found

    def value(self, name: str) -> Any:
        """Return what `name` is, None where it is not given."""
        return self._data.get(name)

    def number(self, name: str, *, zero: bool = False) -> float:
        """Return a number above 0, or 0 where that may be."""
        return self.check_number(name, self._data.get(name, 0.0), zero=zero)

    def check_number(self, name: str, value: Any, *, zero: bool = False) -> float:
        """Return `value`, if it is a number that `name` may be."""
        unit, most = _UNITS[name.partition(".")[0]]
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most
        if not good or not (value or zero):
            least = "from 0" if zero else "above 0"
            raise self.error(f"{name} is {value!r}", f"it is a number {least} up to {most:g}, in {unit}")
        return float(value)


def _device(table: _Table, known: Mapping[str, Device]) -> Device:
    if table.value("figures") is not None:
        return _known_device(table, known)
    table.check(_DEVICE, ("start_us", "source"))
    name, speeds = _text(table, "name"), table.value("gflops")
    if not isinstance(speeds, dict) or OTHER not in speeds:
        raise table.error("gflops names no speed for other work", f"write gflops = {{ {OTHER} = 1000 }}")
    for kind in speeds:
        if kind not in _KINDS:
            raise table.error(f"gflops.{kind} is unknown", f"kinds of work are {', '.join(_KINDS)}")
    return Device(
        name,
        {kind: table.check_number(f"gflops.{kind}", speed) for kind, speed in speeds.items()},
        gbs=table.number("gbs"),
        memory=table.number("memory_gb") * 1e9,
        start_us=table.number("start_us", zero=True),
        source=_text(table, "source") if table.value("source") is not None else table.path.name,
    )


def _known_device(table: _Table, known: Mapping[str, Device]) -> Device:
    table.check(("name", "figures"))
    name, figures = _text(table, "name"), table.value("figures")
    if not isinstance(figures, str) or figures not in known:
        raise table.error(
            f"there are no figures of {figures!r}",
            f"name one of {', '.join(known)}, or write gflops, gbs and memory_gb" if known else "write gflops",
        )
    return replace(known[figures], name=name)


def _text(table: _Table, name: str) -> str:
    text = table.value(name)
    if not isinstance(text, str) or not text:
        raise table.error(f"its {name} is {text!r}", f"a {name} is a text")
    return text


def _links(table: _Table, names: list[str]) -> tuple[tuple[Link, ...], ...]:
    links: dict[frozenset[str], Link] = {}
    for number, each in enumerate(table.tables("link"), 1):
        link = _Table(table.path, f"[[link]] {number}", each)
        link.check(_LINK)
        ends = link.value("between")
        if not isinstance(ends, list) or len(ends) != 2 or not set(map(str, ends)) <= set(names) or ends[0] == ends[1]:
            raise link.error(f"it is between {ends!r}", f"name two of {', '.join(names)}")
        if frozenset(ends) in links:
            raise link.error(f"there is one between {' and '.join(ends)} already", "give each two devices one link")
        links[frozenset(ends)] = Link(link.number("latency_us", zero=True), link.number("gbs"))
    nothing = Link(0.0, float("inf"))
    for index, name in enumerate(names):
        for other in names[:index]:
            if frozenset((name, other)) not in links:
                raise table.error(f"no link is between {other} and {name}", "write a [[link]] for each two devices")
    return tuple(
        tuple(links[frozenset((name, other))] if name != other else nothing for other in names) for name in names
    )
