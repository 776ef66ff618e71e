"""Links generated object files into a shared library with whichever linker the machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fusion.errors import SavedFileError
from fusion.module.shared_library import load_library, temporary_folder
from fusion.runtime import Module, tvm_ffi

if TYPE_CHECKING:
    # Whoever asks for the linker need not have the compiler.
    import tvm

_LINKERS = ("cc", "gcc", "clang", "ld")

ELF = sys.platform not in ("darwin", "win32", "cygwin")
"""Whether this system's object files are ELF, whose linkers take scripts and `-z now`."""

ROOM = 16 << 20
"""Bytes that must be free where LLVM writes: it ends the process when a disk is full. MobileViT, the largest of the
models measured, makes a library of 0.56 MB."""


def find_linker() -> str | None:
    """Return the program that links: `CC` if it is set, otherwise the first of cc, gcc, clang and ld in PATH."""
    chosen = os.environ.get("CC")
    return next((path for name in ((chosen,) if chosen else _LINKERS) if (path := shutil.which(name))), None)


def link(executable: tvm.runtime.Executable) -> bytes:
    """Return `executable` as the bytes of a shared library.

    Raises:
        SavedFileError: There is no linker, or it failed, or temporary files cannot be written.
    """
    with temporary_folder(ROOM) as folder:
        return _export(executable, folder).read_bytes()


def load_linked(executable: tvm.runtime.Executable) -> Module:
    """Link `executable` and load it into this process.

    Raises:
        SavedFileError: As `link`; or the system refuses to load the library.
    """
    with temporary_folder(ROOM) as folder:
        return load_library(_export(executable, folder), "the model")


def _export(executable: tvm.runtime.Executable, folder: Path) -> Path:
    linker = find_linker()
    if linker is None:
        raise SavedFileError(
            "cannot save: no linker was found",
            why=f"looked for {', '.join(_LINKERS)} in PATH",
            hint="install a C compiler (Debian and Ubuntu: apt install gcc) or set CC to one",
        )
    library = folder / "module.so"
    executable.export_library(str(library), fcompile=_Link(linker), workspace_dir=str(folder))
    return library


class _Link:
    """The callback with which TVM links what it has written."""

    object_format = "o"

    def __init__(self, linker: str) -> None:
        self.linker = linker

    def get_target_triple(self) -> str:
        """Return the machine for which TVM writes the object file with the virtual machine's instructions."""
        return str(tvm_ffi.get_global_func("target.llvm_get_system_triple")())

    def __call__(self, output: str, objects: list[str], **_: Any) -> None:
        # Undefined symbols (expf, memcpy) are found in the process that loads the library.
        # "now": one that is missing is an error when the library is loaded; later it would end the process.
        now = ["-z", "now"] if ELF else []
        command = [self.linker, "-shared", *now, "-o", output, *objects]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        except OSError as error:
            raise self._failed(str(error)) from error
        if done.returncode != 0:
            raise self._failed(done.stderr.strip()[-500:])

    def _failed(self, why: str) -> SavedFileError:
        return SavedFileError(
            "cannot save: linking failed",
            where=self.linker,
            why=why,
            hint="set CC to a compiler that links for the module's target",
        )
