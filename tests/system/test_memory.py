"""How much memory a process may use, where its control groups have limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fusion.errors import LimitError
from fusion.system import control_groups, memory

ENDLESS = 1 << 45
OF_VERSION_1 = {"membership": "9:name=systemd:/\n4:memory:/docker/abc\n3:cpu:/docker/abc\n"}
OF_VERSION_2 = {"membership": "0::/users/one.scope\n"}


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A machine of 32 TiB, in whose control groups the process is."""
    monkeypatch.setattr(control_groups, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(control_groups, "_MEMBERSHIP", tmp_path / "membership")
    monkeypatch.setattr(memory.os, "sysconf", {"SC_PHYS_PAGES": ENDLESS >> 12, "SC_PAGE_SIZE": 1 << 12}.__getitem__)
    monkeypatch.setattr(memory, "_address_space", lambda: ENDLESS)
    memory._memory_of_machine.cache_clear()
    yield tmp_path
    memory._memory_of_machine.cache_clear()


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, ENDLESS),
        (OF_VERSION_2 | {"groups/memory.max": "max\n"}, ENDLESS),
        (OF_VERSION_2 | {"groups/memory.max": "4096000\n"}, 4096000),
        (OF_VERSION_2 | {"groups/users/one.scope/memory.max": "1000000\n"}, 1000000),
        (OF_VERSION_2 | {"groups/users/memory.max": "2000000\n", "groups/users/one.scope/memory.max": "max\n"},
         2000000),
        (OF_VERSION_1 | {"groups/memory/memory.limit_in_bytes": "9223372036854771712\n"}, ENDLESS),
        (OF_VERSION_1 | {"groups/memory/docker/abc/memory.limit_in_bytes": "3000000\n"}, 3000000),
        (OF_VERSION_1 | {"groups/cpu/docker/abc/memory.limit_in_bytes": "3000000\n"}, ENDLESS),
    ],
    ids=["none", "no limit", "of a container", "its own", "around its own", "no limit, 1", "1", "of another, 1"],
)  # fmt: skip
def test_the_limit_of_a_control_group(system: Path, files: dict[str, str], limit: int) -> None:
    for name, text in files.items():
        (system / name).parent.mkdir(parents=True, exist_ok=True)
        (system / name).write_text(text)
    assert memory.usable_memory() == limit
    memory.check_memory((limit,), 1, "a tensor")
    with pytest.raises(LimitError, match="does not fit the memory"):
        memory.check_memory((limit + 1,), 1, "a tensor")
