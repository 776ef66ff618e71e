"""The module between passes as text files: what `fusion compile --dump` writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fusion.errors import OptionError

if TYPE_CHECKING:
    import tvm


@dataclass
class Dump:
    """A folder of numbered files, one for each state of a module.

    Attributes:
        folder: Where they go.
        count: How many there are.
    """

    folder: Path
    count: int = 0

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Take what the calling thread dumps inside."""
        token = _watching.set(self)
        try:
            yield
        finally:
            _watching.reset(token)

    def begin(self) -> None:
        """Make the folder.

        Raises:
            OptionError: There are files in it already, or it cannot be made.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            filled = any(self.folder.iterdir())
        except (OSError, ValueError) as error:  # the path holds a NUL
            raise _unwritable(self.folder, error) from error
        if filled:
            raise OptionError(f"the folder {str(self.folder)!r} is not empty", hint="name a new one")

    def write(self, name: str, text: str) -> None:
        """Write the next file.

        Raises:
            OptionError: It cannot be written.
        """
        path = self.folder / f"{self.count:03d}_{name}.py"
        try:
            path.write_text(text, encoding="utf-8", errors="replace")
        except (OSError, ValueError) as error:  # the path holds a NUL
            raise _unwritable(path, error) from error
        self.count += 1


_watching: ContextVar[Dump | None] = ContextVar("dump", default=None)


def dump(name: str, mod: tvm.IRModule) -> None:
    """Write `mod` as the state behind `name`, for whoever watches this thread.

    Weights are left out of the text, which is TVMScript; they would be gigabytes.
    """
    watching = _watching.get()
    if watching is not None:
        watching.write(name, mod.script(show_meta=False))


def _unwritable(path: Path, error: Exception) -> OptionError:
    return OptionError(
        f"cannot write {str(path)[:200]!r}",
        why=getattr(error, "strerror", None) or str(error),
        hint="name a folder that can be written and has room",
    )
