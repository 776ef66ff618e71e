"""Links generated object files into a shared library with whichever linker the machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusion.errors import SavedFileError
from fusion.library import LoadedLibrary
from fusion.module.cpu_features import host_architecture, host_system
from fusion.module.shared_library import load_library
from fusion.runtime import tvm_ffi
from fusion.stages import stage
from fusion.system.files import read_file
from fusion.system.process_groups import kill_group, wait_for_end
from fusion.system.temporary_folder import temporary_folder

if TYPE_CHECKING:
    # Whoever asks for the linker need not have the compiler.
    import tvm

_LINKERS = ("cc", "gcc", "clang", "ld")

ELF = sys.platform not in ("darwin", "win32", "cygwin")
"""Whether this system's object files are ELF, whose linkers take scripts and `-z now`."""

_PATIENCE = 60.0
"""Seconds: MobileViT is linked in 0.1."""
_ELF_MAGIC = b"\x7fELF"
_MOST_SAID = 4096
"""Bytes of what a linker says that are read, from the end."""

ROOM = 16 << 20
"""Bytes that must be free where LLVM writes: it ends the process when a disk is full. MobileViT, the largest of the
models measured, makes a library of 0.56 MB."""


def find_linker(triple: str = "") -> str | None:
    """Return the program that links for `triple`, "" for this machine.

    That is `CC` if it is set and compiles for that architecture, otherwise the first in PATH of cc, gcc, clang and ld,
    or for another machine, of those that link for `triple`.
    """
    chosen = os.environ.get("CC")
    if chosen and (not triple or _architecture(chosen) == triple.partition("-")[0]):
        return shutil.which(chosen)
    return next((path for name in _names(triple) if (path := shutil.which(name))), None)


def _names(triple: str) -> tuple[str, ...]:
    """Return the linkers to look for; LLVM's, of no name of its own for each triple, links for all."""
    if not triple:
        return _LINKERS
    return tuple(dict.fromkeys((f"{triple}-gcc", f"{_gnu(triple)}-gcc", "ld.lld", f"{_gnu(triple)}-ld")))


def _gnu(triple: str) -> str:
    """Return `triple` without a vendor, as Linux distributions name their compilers by it."""
    parts = triple.split("-")
    return "-".join([parts[0], *parts[1:][-2:]])


def _architecture(compiler: str) -> str:
    """Return the architecture that `compiler` compiles for, "" if it does not tell."""
    try:
        _, said = _run([compiler, "-dumpmachine"])
    except OSError:
        return ""
    return said.partition("-")[0]


def _run(command: Sequence[str]) -> tuple[int, str]:
    """Return the exit status of `command` and the end of what it says.

    What it says goes to a file: a pipe would be read for as long as a child that it leaves behind holds it open.

    Raises:
        OSError: It cannot be started, or does not end within `_PATIENCE`; then it and its children are ended.
    """
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            status = wait_for_end(process, _PATIENCE)
        except subprocess.TimeoutExpired as error:
            raise OSError(f"it did not end within {_PATIENCE} s") from error
        finally:
            if process.poll() is None:
                kill_group(process)
        said.seek(max(0, said.seek(0, os.SEEK_END) - _MOST_SAID))
        return status, said.read().decode(errors="replace").strip()


def _is_library(path: Path, *, elf: bool) -> bool:
    try:
        return not elf or read_file(path, len(_ELF_MAGIC)) == _ELF_MAGIC
    except OSError:
        return False


class MissingSymbol(Exception):
    """A kernel calls a function that does not exist; without a linker, LLVM ends the process for it."""


_MISSING = ("undefined symbol", "symbol not found")
"""What the loaders of glibc and musl say then."""


def link(executable: tvm.runtime.Executable, target: tvm.target.Target) -> bytes:
    """Return `executable`, made for `target`, as the bytes of a shared library.

    Raises:
        SavedFileError: There is no linker, or it failed, or temporary files cannot be written.
    """
    with temporary_folder(ROOM) as folder:
        return _export(executable, _foreign_triple(target), folder).read_bytes()


@stage("link")
def load_linked(executable: tvm.runtime.Executable) -> tuple[LoadedLibrary, bytes]:
    """Link `executable` and load it into this process; return the bytes of the library too.

    Raises:
        SavedFileError: As `link`; or the system refuses to load the library.
        MissingSymbol: A kernel calls a function that no library of this process has.
    """
    with temporary_folder(ROOM) as folder:
        library = _export(executable, "", folder)
        try:
            return load_library(library, "the model"), library.read_bytes()
        except SavedFileError as error:
            if any(text in error.why for text in _MISSING):
                raise MissingSymbol(error.why) from error
            raise


def link_objects(objects: Sequence[Path], library: Path) -> None:
    """Write a shared library for this machine of object files.

    Raises:
        SavedFileError: There is no linker, or it failed.
    """
    linker = find_linker()
    if linker is None:
        raise _no_linker("")
    _Link(linker, "")(str(library), [str(path) for path in objects])


def _foreign_triple(target: tvm.target.Target) -> str:
    """Return the triple of `target`; "" if it is of this machine's architecture and system."""
    triple = str(target.attrs.get("mtriple", ""))
    ours = triple.startswith(f"{host_architecture()}-") and host_system() in triple
    return "" if ours else triple


def _export(executable: tvm.runtime.Executable, triple: str, folder: Path) -> Path:
    linker = find_linker(triple)
    if linker is None:
        raise _no_linker(triple)
    library = folder / "module.so"
    executable.export_library(str(library), fcompile=_Link(linker, triple), workspace_dir=str(folder))
    return library


def _no_linker(triple: str) -> SavedFileError:
    package = f"gcc-{_gnu(triple).replace('_', '-')}" if triple else "gcc"
    return SavedFileError(
        f"cannot save: no linker {f'for {triple} ' if triple else ''}was found",
        why=f"looked for {', '.join(_names(triple))} in PATH",
        hint=f"install a C compiler (Debian and Ubuntu: apt install {package}) or set CC to one"
        + (" that compiles for it" if triple else ""),
    )


class _Link:
    """The callback with which TVM links what it has written."""

    object_format = "o"

    def __init__(self, linker: str, triple: str) -> None:
        """`triple` is "" for this machine."""
        self.linker = linker
        self.triple = triple

    def get_target_triple(self) -> str:
        """Return the machine for which TVM writes the object file with the virtual machine's instructions."""
        return self.triple or str(tvm_ffi.get_global_func("target.llvm_get_system_triple")())

    def __call__(self, output: str, objects: list[str], **_: Any) -> None:
        # Undefined symbols (expf, memcpy) are found in the process that loads the library.
        # "now": one that is missing is an error when the library is loaded; later it would end the process.
        now = ["-z", "now"] if ELF or self.triple else []
        command = [self.linker, "-shared", *now, "-o", output, *objects]
        try:
            status, said = _run(command)
        except (OSError, ValueError) as error:
            raise self._failed(str(error)) from error
        if status != 0:
            raise self._failed(said[-500:] or f"it ended with {status}")
        if not _is_library(Path(output), elf=bool(ELF or self.triple)):
            raise self._failed("it wrote no library")

    def _failed(self, why: str) -> SavedFileError:
        return SavedFileError(
            "cannot save: linking failed",
            where=self.linker,
            why=why,
            hint="set CC to a compiler that links for the module's target",
        )
