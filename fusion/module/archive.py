"""The container of a saved module: a zip of stored members, each aligned so that it can be memory-mapped from the file.

Only bytes and names live here; what they mean is in `manifest.py`. Nothing is ever unpickled or executed by reading.
"""

from __future__ import annotations

import errno
import hashlib
import io
import mmap
import struct
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fusion.errors import SavedFileError
from fusion.module.replace_file import replace_file
from fusion.system.files import open_file
from fusion.system.map_in_threads import map_in_threads

MANIFEST = "manifest.json"
_PAGE = 4096
_CHUNK = 8 << 20
_FIXED_HEADER = 30
"""Bytes of a zip member's local header before its name (APPNOTE.TXT 4.3.7)."""
_ALIGNMENT_FIELD = 0xD935
"""Extra field that pads a member to an alignment, as Android's zipalign writes it."""
_ZIP64_EXTRA = 20
_STAMP = (1980, 1, 1, 0, 0, 0)
Data = bytes | bytearray | memoryview


def write_archive(path: Path, members: Mapping[str, Data]) -> None:
    """Write `members` to `path`, whole or not at all: a temporary file beside it takes its name at the end.

    Raises:
        SavedFileError: The folder does not exist or cannot be written, or the disk is full.
    """
    try:
        if path.is_dir():
            hint = f"name a file in it: {str(path / 'NAME')[:200]!r}"
            raise SavedFileError(f"cannot write {str(path)[:200]!r}", why="it is a folder", hint=hint)
        if path.exists() and not path.is_file():
            # A rename would put the file in the place of a device or a pipe.
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        replace_file(path, lambda file: write_members(file, members))
    except (OSError, ValueError) as error:  # the path holds a NUL, or half of a surrogate pair
        raise SavedFileError(
            f"cannot write {str(path)[:200]!r}",
            why=getattr(error, "strerror", None) or str(error),
            hint="check that the folder exists and has room",
        ) from error


def archive_bytes(members: Mapping[str, Data]) -> bytes:
    """Return what `write_archive` writes."""
    file = io.BytesIO()
    write_members(file, members)
    return file.getvalue()


def write_members(file: BinaryIO, members: Mapping[str, Data]) -> None:
    """Write `members` as an archive to `file`, from where it stands."""
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _STAMP)
            large = len(data) >= zipfile.ZIP64_LIMIT
            before = file.tell() + _FIXED_HEADER + len(name.encode()) + 4 + (_ZIP64_EXTRA if large else 0)
            padding = -before % _PAGE
            info.extra = struct.pack("<HH", _ALIGNMENT_FIELD, padding) + bytes(padding)
            with archive.open(info, "w", force_zip64=large) as member:
                member.write(data)


class Archive:
    """An opened archive, memory-mapped; views of its members stay valid for as long as they are referenced."""

    def __init__(self, path: Path, source: bytes | BinaryIO | None = None) -> None:
        """Open `path`, or what is in memory or opened already: `source`, which errors then call `path`.

        Raises:
            SavedFileError: There is no such file, or it is no archive or one cut short.
        """
        self.path = path
        try:
            with io.BytesIO(source) if isinstance(source, bytes) else source or open_file(path) as file:
                self._map = _map_bytes(source) if isinstance(source, bytes) else _map_file(file)
                self._members = _locate_members(file, len(self._map))
        except OSError as error:
            raise SavedFileError(
                f"cannot open {str(path)[:200]!r}", why=error.strerror or str(error), hint="check the path"
            ) from error
        except (ValueError, OverflowError, NotImplementedError) as error:
            raise self.damaged(str(error)) from error
        except (zipfile.BadZipFile, struct.error, KeyError, RuntimeError, EOFError) as error:
            raise self.damaged(str(error)) from error

    def read(self, name: str) -> memoryview:
        """Return a view of the member `name`.

        Raises:
            SavedFileError: It is missing.
        """
        if name not in self._members:
            raise self.damaged(f"the member {name!r} is missing")
        member = self._members[name]
        return memoryview(self._map)[member.start : member.start + member.size]

    def read_manifest(self) -> bytes:
        """Return the manifest, whose own checksum is the one zip keeps.

        Raises:
            SavedFileError: It is missing or damaged.
        """
        data = bytes(self.read(MANIFEST))
        if zlib.crc32(data) != self._members[MANIFEST].crc:
            raise self.damaged("the checksum of its manifest does not match")
        return data

    def check(self, name: str, digest: str) -> None:
        """Raise unless the member `name` has the checksum `digest`.

        Raises:
            SavedFileError: It has another, or is missing.
        """
        if checksum(self.read(name)) != digest:
            raise self.damaged(f"the checksum of its member {name!r} does not match")

    def damaged(self, why: str) -> SavedFileError:
        """Return the error for a file that is not what `save` wrote."""
        return SavedFileError(
            f"{self.path} is not a saved module, or is damaged or cut short",
            why=why,
            hint="copy it again from its source, or compile the model again and save it",
        )


def _map_file(file: BinaryIO) -> mmap.mmap:
    # Private and copy-on-write: DLPack takes only writable memory, and the file must not change.
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def _map_bytes(data: bytes) -> mmap.mmap:
    # A mapping too, as its start lies on a page and members are aligned to that.
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    return mapped


def checksum(data: Data) -> str:
    """Return the sha256 of the sha256s of each `_CHUNK` of `data`, in hexadecimal.

    Chunks are hashed on all CPUs, each at about 1.3 GB/s: the weights of BERT-base, 340 MB, take 0.13 s on two.
    """
    view = memoryview(data)
    chunks = (view[start : start + _CHUNK] for start in range(0, len(view), _CHUNK))
    parts = map_in_threads(lambda chunk: hashlib.sha256(chunk).digest(), chunks)
    return hashlib.sha256(b"".join(parts)).hexdigest()


@dataclass(frozen=True)
class _Member:
    """Where the data of a member lies, in bytes, and its CRC-32."""

    start: int
    size: int
    crc: int


def _locate_members(file: BinaryIO, size: int) -> dict[str, _Member]:
    found = {}
    with zipfile.ZipFile(file) as archive:
        for info in archive.infolist():
            if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
                raise ValueError(f"its member {info.filename!r} is compressed")
            file.seek(info.header_offset)
            header = file.read(_FIXED_HEADER)
            name_size, extra_size = struct.unpack("<HH", header[26:30])
            start = info.header_offset + _FIXED_HEADER + name_size + extra_size
            if start + info.file_size > size:
                raise ValueError(f"its member {info.filename!r} ends behind the end of the file")
            found[info.filename] = _Member(start, info.file_size, info.CRC)
    return found
