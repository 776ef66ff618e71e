"""Chooses the tests that are nearest to a change, from what git says has changed and what the tests import."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from tests.imported import PACKAGES, imported, modules

# What every change can break, in 10 s together: sizes and imports of files, docs of errors, a model's way in.
CORE = (
    "tests/test_style.py",
    "tests/test_imports.py",
    "tests/bad_input/test_errors_documented.py",
    "tests/frontends/test_import.py",
)


class Nearness(IntEnum):
    """Why a test file is near to a changed file, the nearest first."""

    CHANGED = 0
    IMPORTS_OR_NAMES_IT = 1
    MIRRORS_ITS_FOLDER = 2


def changed_files(root: Path, against: str) -> list[str]:
    """Return what differs from where this branch left `against`: committed, uncommitted and new files.

    Raises:
        subprocess.CalledProcessError: git knows no `against`, or this is no checkout; it says so on stderr.
    """

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, check=True, stdout=subprocess.PIPE, text=True).stdout

    base = git("merge-base", "HEAD", against).strip()
    tracked = git("diff", "--name-only", "--no-renames", "-z", base)
    new = git("ls-files", "--others", "--exclude-standard", "-z")
    return sorted({name for name in (tracked + new).split("\0") if name})


def nearest_tests(root: Path, changed: Sequence[str]) -> list[str]:
    """Return the core and the test files near to any of `changed`, nearest first.

    Of equally near ones those come first that are near to more of the changed files, then those in a folder above.
    """
    known = modules(root, (*PACKAGES, "tests"))
    names = {str(path.relative_to(root)): name for name, path in known.items()}
    changes = [_Change(Path(file), names.get(file), _mirror(root, Path(file))) for file in changed]
    order: dict[str, tuple[int, int, int]] = {}
    for path in (root / "tests").rglob("test_*.py"):
        test = _Test(path.relative_to(root), frozenset(imported(path, known)), path.read_text())
        near = [why for change in changes if (why := _nearness(test, change)) is not None]
        if near:
            order[str(test.file)] = (min(near), -near.count(min(near)), len(test.file.parts))
    return [*CORE, *sorted(order.keys() - set(CORE), key=lambda file: (order[file], file))]


@dataclass(frozen=True)
class _Change:
    """A changed file, the module it is unless it is none or is gone, and the folder of tests for its folder, if any."""

    file: Path
    module: str | None
    folder: Path | None


@dataclass(frozen=True)
class _Test:
    """A test file, the modules of ours that it imports, and its text."""

    file: Path
    imports: frozenset[str]
    text: str = field(repr=False)


def _nearness(test: _Test, change: _Change) -> Nearness | None:
    """Return why `test` is near to `change`, or None."""
    if test.file == change.file:
        return Nearness.CHANGED
    mirrors = change.folder in test.file.parents
    if change.file.suffix == ".py":
        named = mirrors and test.file.stem == f"test_{change.file.stem}"
    else:
        named = change.file.name in test.text
    if named or change.module in test.imports:
        return Nearness.IMPORTS_OR_NAMES_IT
    return Nearness.MIRRORS_ITS_FOLDER if mirrors else None


def _mirror(root: Path, path: Path) -> Path | None:
    """Return the deepest folder of tests for a file's folder, or None: `fusion/passes/layout/x.py`: `tests/passes`."""
    parts = path.parts[1:-1] if path.parts[0] in ("fusion", "tests") else path.parts[:-1]
    folders = [Path("tests", *parts[:count]) for count in range(len(parts), 0, -1)]
    return next((folder for folder in folders if (root / folder).is_dir()), None)
