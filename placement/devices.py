"""Devices and the links between them, by what data sheets say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

OTHER = "other"
"""The kind of work whose speed a device has for all kinds that it does not name."""


@dataclass(frozen=True)
class Work:
    """What an operator takes of any device.

    Attributes:
        kind: Of its arithmetic: "matmul", "convolution" or `OTHER`.
        flops: Floating-point operations.
        bytes: What it reads and writes of memory.
    """

    kind: str
    flops: float
    bytes: float


@dataclass(frozen=True)
class Device:
    """One device.

    Attributes:
        name: What plans call it.
        gflops: What it computes in 1e9 operations per second, by kind of work; `OTHER` is always there.
        gbs: Bandwidth of its memory in 1e9 bytes per second.
        memory: Bytes for weights and results.
        start_us: What each operator takes besides, in microseconds: the launch of a kernel.
        source: Where these figures are from, for reports.
    """

    name: str
    gflops: Mapping[str, float]
    gbs: float
    memory: float
    start_us: float = 0.0
    source: str = ""

    def seconds(self, work: Work) -> float:
        """Return what `work` takes by the roofline model (Williams, Waterman, Patterson 2009)."""
        rate = self.gflops.get(work.kind, self.gflops[OTHER])
        return self.start_us * 1e-6 + max(work.flops / (rate * 1e9), work.bytes / (self.gbs * 1e9))


@dataclass(frozen=True)
class Link:
    """What copies from one device to another go through.

    Attributes:
        latency_us: What each copy takes besides its bytes, in microseconds.
        gbs: Bandwidth in 1e9 bytes per second.
    """

    latency_us: float
    gbs: float

    def seconds(self, size: float) -> float:
        """Return what a copy of `size` bytes takes."""
        return self.latency_us * 1e-6 + size / (self.gbs * 1e9)


@dataclass(frozen=True)
class Topology:
    """The devices that a model may use.

    Attributes:
        links: From each device (row) to each (column); what stays where it is takes nothing, so the diagonal is not
            read.
    """

    devices: tuple[Device, ...]
    links: tuple[tuple[Link, ...], ...]

    @classmethod
    def uniform(cls, devices: tuple[Device, ...], link: Link) -> Topology:
        """Return devices with the same link between any two."""
        return cls(devices, ((link,) * len(devices),) * len(devices))
