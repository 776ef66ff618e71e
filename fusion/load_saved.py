"""Loads a saved module."""

from __future__ import annotations

from pathlib import Path

from fusion.compiled_module import CompiledModule, restore
from fusion.module.archive import Archive
from fusion.module.read_saved import read_saved
from fusion.options import check_flag
from fusion.system.files import as_path


def load(path: str | Path, *, verify: bool = True) -> CompiledModule:
    """Return the module that `CompiledModule.save` wrote to `path`.

    The file holds machine code: load only files you trust. Weights are mapped from it, so it must not be changed
    while the module is in use (`save` itself is safe: it replaces the file).

    Args:
        verify: Whether to check the weights' checksums too, which reads them once, at about 1.3 GB/s a CPU. The
            checksums of code and manifest, and the sizes of all members, are always checked. Parts that run on
            libraries are opened in another process first, once on a machine: what crashes or hangs is an error.

    Raises:
        SavedFileError: There is no such file, it is damaged or cut short, or another version of fusion or TVM wrote it.
        TargetError: It was compiled for another CPU architecture, for CPU features that this machine lacks, or for a
            CUDA device, and there is none that runs it.
        LimitError: It does not fit the memory of the device.
        NotInstalledError: ONNX Runtime, or a library, runs parts of it, and is not installed.
        ExecutionError: A library cannot open the part that it runs.
    """
    check_flag("verify", verify)
    return restore(read_saved(Archive(as_path(path)), verify=verify, apart=verify))


def load_to_explain(path: str | Path) -> CompiledModule:
    """Return the module that was saved to `path`, also where it is for another machine: then it can be explained, and a
    run raises the TargetError of `load`.

    Raises:
        SavedFileError, LimitError, NotInstalledError, ExecutionError: As `load`.
    """
    return restore(read_saved(Archive(as_path(path)), apart=True, to_explain=True))
