"""Where the models of machines are: a folder beside a database, with a file for each environment."""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from backends.backend import KernelCompiler
from fusion.cache import DiskCache, Store, find_place
from tuning.canonical import canonical
from tuning.database import Database, RecordStore, default_path
from tuning.known import environment_of
from tuning.machine_model import MachineModel
from tuning.task import Environment

_MOST_BYTES = 1 << 30
_log = logging.getLogger("fusion.tuning")


@dataclass(frozen=True)
class ModelStore:
    """Models of machines. A file is complete when it has its name, and one that is damaged, or of something else, is
    none, with a warning in the log of `fusion.tuning`.

    Attributes:
        folder: Of the files, which need not exist.
    """

    folder: Path

    @staticmethod
    def beside(database: Path) -> ModelStore:
        """Return that of the database at a path."""
        return ModelStore(database.with_name(f"{database.name}.models"))

    def read(self, environment: Environment) -> MachineModel | None:
        """Return what was learned in an environment; None where nothing was."""
        name = _name(environment)
        data = self._store.read(name) if self.folder.is_dir() else None
        if data is None:
            return None
        try:
            model = MachineModel.from_text(data.decode())
        except (ValueError, RecursionError) as error:
            _warn(f"the model {self.folder / name} is damaged, and not used: {error}")
            return None
        return model if model.environment == environment else None

    def write(self, model: MachineModel) -> bool:
        """Keep `model` in the place of the one before; returns whether it is kept."""
        data = model.as_text().encode()
        name = _name(model.environment)
        return self._store.write(name, len(data), lambda file: file.write(data), make_room=False)

    @property
    def _store(self) -> Store:
        return Store(DiskCache(self.folder, _MOST_BYTES))


def find_model(store: RecordStore | None, compiler: KernelCompiler) -> MachineModel | None:
    """Return what was learned of this machine, run as `compiler` writes for it: beside a database that was named, or
    beside the user's own. None where nothing was."""
    path = _path_of(store)
    if path is None or not ModelStore.beside(path).folder.is_dir():  # nobody asks for versions then
        return None
    try:
        return ModelStore.beside(path).read(environment_of(compiler))
    except OSError as error:  # nobody can say what kernels are made by
        _log.info("no model is looked for: %s", error)
        return None


def _path_of(store: RecordStore | None) -> Path | None:
    if store is not None:
        return store.path if isinstance(store, Database) else None
    place = find_place()
    return None if place is None else default_path(place)


def _name(environment: Environment) -> str:
    return f"{hashlib.sha256(canonical(environment.as_data()).encode()).hexdigest()}.model"


@cache
def _warn(text: str) -> None:
    """Log `text` the first time that this process has reason to."""
    _log.warning("%s", text)
