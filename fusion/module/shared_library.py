"""Shared libraries pass through files, as the system's loader wants paths."""

from __future__ import annotations

from pathlib import Path

from fusion.errors import SavedFileError
from fusion.library import LoadedLibrary, open_library


def load_library(path: Path, origin: str) -> LoadedLibrary:
    """Return the library at `path`, loaded into this process; the mapping that the loader makes outlives the file.

    Raises:
        SavedFileError: The system refuses to load it; the error calls it the code of `origin`.
    """
    try:
        return open_library(path)
    except Exception as error:  # TVM passes on the text of dlerror in several classes
        raise SavedFileError(
            f"the system refuses to load the code of {origin}",
            why=str(error).strip()[-500:],
            hint="if the folder for temporary files forbids execution, set TMPDIR to one that allows it",
        ) from error
