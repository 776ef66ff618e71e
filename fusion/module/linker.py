"""Links generated object files into a shared library with whichever linker the machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import tvm

from fusion.errors import SavedFileError
from fusion.runtime import Module, tvm_ffi

_LINKERS = ("cc", "gcc", "clang", "ld")


def find_linker() -> str | None:
    """Return the program that links: `CC` if it is set, otherwise the first of cc, gcc, clang and ld in PATH."""
    chosen = os.environ.get("CC")
    return next((path for name in ((chosen,) if chosen else _LINKERS) if (path := shutil.which(name))), None)


def link(executable: tvm.runtime.Executable) -> bytes:
    """Return `executable` as the bytes of a shared library.

    Raises:
        SavedFileError: There is no linker, or it failed.
    """
    with tempfile.TemporaryDirectory(prefix="fusion-") as folder:
        return _export(executable, folder).read_bytes()


def load_linked(executable: tvm.runtime.Executable) -> Module:
    """Link `executable` and load it into this process.

    Raises:
        SavedFileError: There is no linker, or it failed.
        Exception: The system refuses to load the library (TVM passes on the text of dlerror in several classes).
    """
    # The mapping that the loader makes outlives the file.
    with tempfile.TemporaryDirectory(prefix="fusion-") as folder:
        return tvm_ffi.load_module(str(_export(executable, folder)))


def _export(executable: tvm.runtime.Executable, folder: str) -> Path:
    linker = find_linker()
    if linker is None:
        raise SavedFileError(
            "cannot save: no linker was found",
            why=f"looked for {', '.join(_LINKERS)} in PATH",
            hint="install a C compiler (Debian and Ubuntu: apt install gcc) or set CC to one",
        )
    library = Path(folder) / "module.so"
    executable.export_library(str(library), fcompile=_Link(linker), workspace_dir=folder)
    return library


class _Link:
    """The callback with which TVM links what it has written."""

    object_format = "o"

    def __init__(self, linker: str) -> None:
        self.linker = linker

    def get_target_triple(self) -> str:
        """Return the machine for which TVM writes the object file with the virtual machine's instructions."""
        return str(tvm.target.codegen.llvm_get_system_triple())

    def __call__(self, output: str, objects: list[str], **_: Any) -> None:
        # Undefined symbols (expf, memcpy) are found in the process that loads the library.
        # "now": one that is missing is an error when the library is loaded; later it would end the process.
        command = [self.linker, "-shared", "-z", "now", "-o", output, *objects]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SavedFileError(
                "cannot save: linking failed",
                where=self.linker,
                why=done.stderr.strip()[-500:],
                hint="set CC to a compiler that links for the module's target",
            )
