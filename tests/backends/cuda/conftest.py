"""What tests of whole models for CUDA devices share."""

from __future__ import annotations

import pytest

from backends.cuda.codegen import device_code
from backends.cuda.codegen.nvrtc import Assembled, find_nvrtc


@pytest.fixture
def assembler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where NVRTC is not installed, put text in the place of what it makes: the emulator takes the CUDA C."""
    if find_nvrtc() is None:
        monkeypatch.setattr(device_code, "assemble", lambda source, arch: Assembled(arch.encode(), b"// ptx"))
