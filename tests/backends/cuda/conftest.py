"""What tests of whole models for CUDA devices share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from backends.cuda.codegen import device_code
from backends.cuda.codegen.nvrtc import Assembled, find_nvrtc
from backends.cuda.runtime import driver
from tests.backends.cuda.fake.fake_cuda import WHY_NOT, FakeCuda, fake_assemble, fake_library


@pytest.fixture
def assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NVRTC is not installed, put text in the place of what it makes: the emulator takes the CUDA C. No driver is
    here, which would not take the text."""
    monkeypatch.setattr(driver, "LIBRARY", "no-such-library.so")
    if find_nvrtc() is None:
        monkeypatch.setattr(device_code, "assemble", lambda source, arch, name: Assembled(arch.encode(), b"// ptx"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCuda]:
    """Have the fake driver in the place of the machine's, with one device of 1 GB, sm_80, and code that it takes."""
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    monkeypatch.setattr(driver, "LIBRARY", str(fake_library()))
    monkeypatch.setattr(device_code, "assemble", fake_assemble)
    made = FakeCuda()
    made.reset()
    yield made
    made.reset()
