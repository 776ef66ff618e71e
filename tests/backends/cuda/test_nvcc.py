"""nvcc makes code where there is no NVRTC; scripts stand for it, and the one that is installed where there is one."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from backends.cuda.codegen import nvcc, nvrtc
from backends.cuda.codegen.generate import generate_kernel
from backends.cuda.codegen.nvcc import compile_source, find_nvcc
from backends.cuda.runtime.cubin import read_resources
from fusion.errors import FusionError, InternalError, NotInstalledError
from tests.backends.cuda.test_emulator import reversed_exponentials

WRITES = 'for last; do :; done; echo "$1 $2" > "$last"'


def script(folder: Path, text: str) -> str:
    """Return a program of this text."""
    path = folder / "nvcc"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_it_takes_the_place_of_nvrtc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "find_nvrtc", lambda: None)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    script(tmp_path, WRITES)
    code = nvrtc.assemble("// a kernel", "sm_80")
    assert code == nvrtc.Assembled(b"-cubin -arch=sm_80\n", b"-ptx -arch=sm_80\n")


def test_that_of_packages_is_found_behind_that_of_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages of CUDA 13 share a folder; a package of CUDA 12 has its own, and parts of nvcc alone."""
    package, path = (tmp_path / "nvidia" / each / "bin" for each in ("cu13", "cuda_nvcc"))
    for folder in (package, path):
        folder.mkdir(parents=True)
    script(package, WRITES)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PATH", str(path))
    assert find_nvcc() == str(package / "nvcc")
    script(path, WRITES)
    assert find_nvcc() == str(path / "nvcc")


@pytest.mark.parametrize(
    ("text", "error", "told"),
    [
        ('echo "kernel.cu(3): error: no such name" >&2; exit 2', InternalError, "no such name"),
        ('echo "nvcc fatal: no host compiler" >&2; exit 1', NotInstalledError, "no host compiler"),
    ],
)
def test_what_it_refuses_is_told(text: str, error: type[FusionError], told: str, tmp_path: Path) -> None:
    with pytest.raises(error) as raised:
        compile_source(script(tmp_path, text), "// a kernel", "sm_80")
    assert told in raised.value.why
    assert raised.value.hint
    with pytest.raises(NotInstalledError):
        compile_source(str(tmp_path / "no-such-program"), "// a kernel", "sm_80")


def test_one_that_does_not_end_is_told_of_and_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(nvcc, "_SILENCE_S", 0.2)
    monkeypatch.setattr(nvcc, "_SECONDS", 0.6)
    with pytest.raises(NotInstalledError) as raised:
        compile_source(script(tmp_path, "sleep 60; true"), "// a kernel", "sm_80", "matmul.0")
    assert "did not make the cubin of kernel 'matmul.0' in 0.6 s" in raised.value.why
    assert "has not made the cubin of kernel 'matmul.0'" in caplog.text


def test_what_it_leaves_running_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A child keeps the pipe open that nvcc tells its errors through, whether nvcc ends, or is given up."""
    leaves = "setsid sleep 20 &"
    begun = time.monotonic()
    assert compile_source(script(tmp_path, f"{leaves} {WRITES}"), "// a kernel", "sm_80")[0].startswith(b"-cubin")
    with pytest.raises(InternalError) as raised:
        compile_source(script(tmp_path, f'{leaves} echo "kernel.cu(3): error" >&2; exit 2'), "// a kernel", "sm_80")
    assert "kernel.cu(3)" in raised.value.why
    monkeypatch.setattr(nvcc, "_SILENCE_S", 0.2)
    monkeypatch.setattr(nvcc, "_SECONDS", 0.6)
    with pytest.raises(NotInstalledError):
        compile_source(script(tmp_path, f"{leaves} sleep 60; true"), "// a kernel", "sm_80")
    assert time.monotonic() - begun < 15


@pytest.mark.skipif(find_nvcc() is None, reason="there is no nvcc")
def test_the_one_that_is_installed_takes_what_the_generator_writes() -> None:
    found = find_nvcc()
    assert found is not None
    kernel = generate_kernel(reversed_exponentials, "reversed", "sm_80")
    cubin, ptx = compile_source(found, kernel.source, "sm_80")
    resources = read_resources(cubin, kernel.symbol)
    assert resources is not None
    assert 0 < resources.registers <= 64
    assert resources.shared_bytes == 256 * 4
    assert b".target sm_80" in ptx
    assert kernel.symbol.encode() in ptx
