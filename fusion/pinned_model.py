"""The model of a module that reads it again, for a new shape or with other weights: it must be the same each time."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from fusion.cache import DiskCache
from fusion.cache.file_digests import FileState
from fusion.errors import FusionError, ModelChangedError, ModelFileError
from fusion.foreign_files import check_model_file
from fusion.frontends.torch import TorchModel
from fusion.model_digest import ModelDigest, digest_model

T = TypeVar("T")
_MEANWHILE = (
    "what the module has compiled so far goes on; to compile for new shapes as well, compile the model again "
    "(fusion.compile), or give every shape in shapes= before the model changes"
)
_GONE = "keep the file while the module meets new shapes, or compile with shapes=, or save the module (module.save)"
_log = logging.getLogger("fusion")


class PinnedModel:
    """A model, as `open_model` returned it, whose readers all see it as the first of them did.

    It is no copy: before each reading, files are asked whether they have been written to, and what lies in memory is
    summed up again, which takes far less than what follows.
    """

    def __init__(self, model: Any, place: DiskCache | None = None) -> None:
        """`place` is the cache that knows files which have not changed."""
        self._model = model
        self._place = place
        self._pinned: ModelDigest | None = None
        self._begun: _Begun | None = None
        self._later = False

    @property
    def is_file(self) -> bool:
        """Whether the model is read from a file each time."""
        return isinstance(self._model, str | Path)

    def pin(self) -> None:
        """Have the model checked from now on even where nothing else needs its digest. A thread sums up a file, at 0.6
        to 1.4 GB/s, while the compiler is imported and the model read."""
        self._later = True
        if self._begun is None and self.is_file:
            self._begun = _Begun.of(Path(self._model), self._place)
        if self._begun is None:
            self._digest()

    def read(self, use: Callable[[Any, ModelDigest | None], T], digest: bool = False) -> T:
        """Return what `use` makes of the model, and of its digest, None where it has none.

        Args:
            digest: Whether `use` needs the digest, of a model that is not pinned too, or is still summed up.

        Raises:
            ModelChangedError: The model has changed since it was first read, or while `use` read it.
            ModelFileError: Its file is gone.
        """
        waits = not digest and self._begun is not None and not self._begun.is_done
        found = self._digest() if digest or (self._later and not waits) else None
        with self.unchanged():
            result = use(self._model, found)
        if waits:
            found = self._digest()
        if found is not None and not found.current():
            self._digest()
        return result

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Have an error of what reads the model meanwhile say that it has changed, where it has: half of a file that is
        being written reads as a broken one.

        Raises:
            ModelChangedError, ModelFileError: As `read`.
        """
        try:
            yield
        except FusionError:
            before = self._known()
            if before is not None and not before.current():
                self._digest()
            raise

    def _digest(self) -> ModelDigest | None:
        """Return the digest of the model, the same each time.

        Raises:
            ModelChangedError, ModelFileError: As `read`.
        """
        before = self._known()
        if before is not None and before.files and before.current():
            return before
        try:
            found = digest_model(self._model, self._place)
        except Exception as error:  # of a model that cannot be read, where compiling says why
            if before is not None and self.is_file:
                raise _gone(Path(self._model), error) from error
            _log.info("the model has no digest: %s", error)
            return None
        if before is not None and not found.is_of(before):
            raise _changed(self._model, before)
        self._pinned = found
        return found

    def _known(self) -> ModelDigest | None:
        """Return the digest of the model as it was first; None where it has none yet."""
        if self._pinned is None and self._begun is not None:
            self._pinned = self._begun.result()
        return self._pinned


@dataclass(frozen=True)
class _Begun:
    """A file that a thread sums up.

    Attributes:
        state: The file as it was when that began.
        call: Gets its digest; None if it cannot be read.
        process: The one of the thread: another, forked meanwhile, waits for none.
    """

    state: FileState
    call: Future[ModelDigest | None]
    process: int

    @classmethod
    def of(cls, path: Path, place: DiskCache | None) -> _Begun | None:
        """Begin; None where there is no such file, or the system starts no thread. It is in none of the stages of the
        caller, whose time it does not take."""
        call = Future[ModelDigest | None]()

        def sum_up() -> None:
            try:
                found = digest_model(path, place)
                call.set_result(found if found.current() else None)  # half of what was read may be of later
            except Exception as error:  # compiling says why it cannot be read
                _log.info("the model has no digest: %s", error)
                call.set_result(None)

        with suppress(OSError, ValueError, RuntimeError):  # of ValueError: no name of a file has a 0
            begun = cls(FileState.of(path), call, os.getpid())
            threading.Thread(target=sum_up, name="fusion-digest").start()
            return begun
        return None

    @property
    def is_done(self) -> bool:
        """Whether nobody need wait."""
        return self.call.done() or self.process != os.getpid()

    def result(self) -> ModelDigest | None:
        """Return the digest of the file as it was when this began, of nothing where it has changed before it was read
        to its end; None if it has none."""
        waits = self.process == os.getpid() or self.call.done()
        found = self.call.result() if waits else None
        if found is None and self.state.current():
            return None
        return found if found is not None and self.state in found.files else ModelDigest("", (self.state,))


def _changed(model: Any, before: ModelDigest) -> ModelChangedError:
    files = ", ".join(repr(path.name) for path in before.changed_files())
    kind = "torch module or program" if isinstance(model, TorchModel) else type(model).__name__
    where = f"file {files}" if files else f"the {kind} in memory, its graph or one of its weights"
    return ModelChangedError(
        "the model is not the one any more that was compiled",
        where=where,
        why="the module would be of one model for some shapes, and of another one for others",
        hint=_MEANWHILE,
    )


def _gone(path: Path, error: Exception) -> ModelFileError:
    try:
        check_model_file(path)
        why = str(error)
    except ModelFileError as refused:
        why = refused.what
    return ModelFileError(
        "the model cannot be read any more, and the module needs it for new shapes and other weights",
        where=f"file {str(path)!r}",
        why=why,
        hint=_GONE,
    )
