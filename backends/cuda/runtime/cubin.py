"""What a cubin says that its kernel takes: the numbers of `ptxas -v`, without ptxas.

A cubin is an ELF file. Its section `.nv.info` is a list of attributes, of which EIATTR_REGCOUNT has the registers of
a thread, and EIATTR_FRAME_SIZE its stack, where what is spilled goes; `.nv.shared.KERNEL` is as large as the shared
memory that the code has, with what the system takes of it where there is a section for that (`cuobjdump -elf` prints
all). Tests hold them to what ptxas says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

_SECTION = struct.Struct("<IIQQQQIIQQ")
"""Elf64_Shdr: name, type, flags, address, offset, size, link, info, alignment, entry size."""
_SECTIONS_AT, _COUNTS_AT = 0x28, 0x3A
"""Of the ELF header: `e_shoff`; `e_shentsize`, `e_shnum` and `e_shstrndx`."""
_SIZED, _REGISTERS, _FRAME = 4, 0x2F, 0x11
"""A format of attributes, whose bytes follow; those above, each of a symbol and a number."""
_NO_BITS = 8
"""The type SHT_NOBITS of sections."""
_RESERVED_SECTION, _RESERVED_BYTES = ".nv.shared.reserved.0", 1024


@dataclass(frozen=True)
class CubinResources:
    """What one kernel takes.

    Attributes:
        registers: Of a thread.
        shared_bytes: Of a block, beside what its launch asks for and the system takes.
        local_bytes: Of a thread, in memory: what is spilled, and arrays that registers cannot have.
    """

    registers: int
    shared_bytes: int
    local_bytes: int


def read_resources(cubin: bytes, symbol: str) -> CubinResources | None:
    """Return what the kernel `symbol` of a cubin takes, which is the only one; None where it cannot be read."""
    if cubin[:4] != b"\x7fELF":
        return None
    try:
        sections = dict(_sections(cubin))
        registers, local = (max(_numbers(sections[".nv.info"], each)) for each in (_REGISTERS, _FRAME))
    except (struct.error, ValueError, IndexError, KeyError):
        return None
    shared = len(sections.get(f".nv.shared.{symbol}", b""))
    reserved = _RESERVED_BYTES if _RESERVED_SECTION in sections else 0
    return CubinResources(registers, max(0, shared - reserved), local)


def _sections(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield names and bytes; those of shared memory, which a file does not hold, are zeros."""
    (begin,) = struct.unpack_from("<Q", data, _SECTIONS_AT)
    size, count, names = struct.unpack_from("<HHH", data, _COUNTS_AT)
    headers = [_SECTION.unpack_from(data, begin + number * size) for number in range(count)]
    for name, kind, _, _, offset, length, *_ in headers:
        text = headers[names][4] + name
        held = bytes(length) if kind == _NO_BITS else data[offset : offset + length]
        yield data[text : data.index(b"\0", text)].decode(), held


def _numbers(attributes: bytes, wanted: int) -> Iterator[int]:
    at = 0
    while at < len(attributes):
        form, attribute, size = struct.unpack_from("<BBH", attributes, at)
        if (form, attribute) == (_SIZED, wanted):
            yield struct.unpack_from("<II", attributes, at + 4)[1]
        at += 4 + (size if form == _SIZED else 0)
