"""Kernels alone as a shared library, for trying them out: no `main`, nothing that a module needs to be saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tvm
from tvm import tirx

from backends.backend import KernelCompiler
from fusion.library import LoadedLibrary
from fusion.module.linker import ELF, ROOM, find_linker, link_objects
from fusion.module.shared_library import load_library
from fusion.system.temporary_folder import temporary_folder


@dataclass(frozen=True)
class KernelLibrary:
    """Makes libraries of kernels with loops, for this machine; a `tuning.toolchain.Toolchain`."""

    compiler: KernelCompiler

    def load(self, kernels: Mapping[str, tirx.PrimFunc]) -> LoadedLibrary:
        """Return the code of `kernels`, ready to run.

        Raises:
            SavedFileError: Temporary files cannot be written, or the linker failed.
        """
        if self.refusal():
            named = {name: func.with_attr("global_symbol", name) for name, func in kernels.items()}
            return LoadedLibrary(tvm.compile(tvm.IRModule(named), target=self.compiler.target).jit(), pooled=False)
        with temporary_folder(ROOM) as folder:
            made, library = folder / "kernels.o", folder / "kernels.so"
            self.compile(kernels, made)
            self.link([made], library)
            return load_library(library, "kernels")

    def refusal(self) -> str:
        """Return why this machine cannot make libraries; "" where it can."""
        if not ELF:
            return "the system's object files are not ELF"
        return "" if find_linker() else "no linker was found"

    def compile(self, kernels: Mapping[str, tirx.PrimFunc], path: Path) -> None:
        """Write the code of `kernels`, by the names they are to have, as an object file."""
        functions = {tvm.ir.GlobalVar(name): func.with_attr("global_symbol", name) for name, func in kernels.items()}
        self.compiler.generate_module(tvm.IRModule(functions)).write_to_file(str(path))

    def link(self, objects: Sequence[Path], path: Path) -> None:
        """Write a shared library of object files.

        Raises:
            SavedFileError: The linker failed.
        """
        link_objects(objects, path)
