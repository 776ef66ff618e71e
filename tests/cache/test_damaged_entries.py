"""An entry that is not what was written is compiled anew, whatever of it is damaged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion
from fusion import cached_forms
from fusion.errors import LimitError, ResourceError
from fusion.module.archive import Archive
from tests.module.small_models import mlp, softmax_of_columns

X = np.random.default_rng(7).standard_normal((3, 8)).astype(np.float32)


def test_damaged_bytes(folder: Path, compiled: list[Any]) -> None:
    expected = fusion.compile(mlp(), threads=1)(X)[0]
    (entry,) = folder.glob("*.fusion")
    whole = entry.read_bytes()
    # Twelve places over the file, most in code and weights; then its ends.
    places = [*np.linspace(0, len(whole) - 1, 12).astype(int), len(whole) - 30]
    spoiled = [whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :] for at in places]
    spoiled += [b"", whole[: len(whole) // 2], whole + whole, bytes(len(whole))]
    found = 0
    for content in spoiled:
        entry.write_bytes(content)
        compiled.clear()
        np.testing.assert_array_equal(fusion.compile(mlp(), threads=1)(X)[0], expected)
        # No reader looks at what lies between members, a third of so small a file, or at all of their headers.
        assert not compiled or entry.read_bytes() == whole
        found += len(compiled)
    assert found > 4


def test_every_member_is_checked(folder: Path, compiled: list[Any]) -> None:
    fusion.compile(mlp(), threads=1)
    (entry,) = folder.glob("*.fusion")
    whole = entry.read_bytes()
    archive = Archive(entry)
    assert len(archive._members) == 5
    for member in archive._members.values():
        at = member.start + member.size // 2
        entry.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        compiled.clear()
        fusion.compile(mlp(), threads=1)
        assert len(compiled) == 1
        assert entry.read_bytes() == whole


@pytest.mark.parametrize("error", [MemoryError(), LimitError("an arena"), ResourceError("an address space")])
def test_an_entry_that_this_process_lacks_memory_for_stays(
    error: Exception, folder: Path, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    fusion.compile(mlp(), threads=1)
    (entry,) = folder.glob("*.fusion")
    before = entry.stat()

    def fail(*_: Any, **__: Any) -> None:
        raise error

    with monkeypatch.context() as lacking:
        lacking.setattr(cached_forms, "read_saved", fail)
        lacking.setattr(cached_forms, "_keep", lambda *_: None)
        fusion.compile(mlp(), threads=1)
    assert len(compiled) == 2
    assert entry.stat().st_ino == before.st_ino


def test_an_entry_under_the_name_of_another(folder: Path, compiled: list[Any]) -> None:
    fusion.compile(mlp(), threads=1)
    (one,) = folder.glob("*.fusion")
    expected = fusion.compile(softmax_of_columns(), threads=1)(X)[0]
    other = next(path for path in folder.glob("*.fusion") if path != one)
    one.replace(other)
    np.testing.assert_array_equal(fusion.compile(softmax_of_columns(), threads=1)(X)[0], expected)
    assert len(compiled) == 3
