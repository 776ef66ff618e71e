"""What NVIDIA's cuDNN says of our graphs, where its package is installed: it answers without a device, for one that is
described as text, and with a library of six functions in the place of the driver, which it does not call then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from itertools import product
from pathlib import Path

import pytest

from backends.cuda.libraries.cudnn import api
from backends.cuda.libraries.cudnn.convolution import LibraryConvolution
from backends.cuda.packages import find_in_package
from tests.backends.cuda.emulator.emulate import COMPILER

LIBRARY = find_in_package("cudnn", "lib/libcudnn.so.9")
_DRIVER = "".join(
    f"int {name}() {{ return 100; }}\n"
    for name in (
        "cuGetErrorString", "cuModuleGetFunction", "cuModuleLoadData", "cuModuleUnload", "cuTensorMapEncodeIm2col",
        "cuTensorMapEncodeTiled",
    )
)  # fmt: skip
BASE = LibraryConvolution(
    images=1, size=(56, 56), channels=64, made=64, taps=(3, 3), strides=(1, 1), dilations=(1, 1), before=(1, 1),
    after=(1, 1), groups=1, dtype="float16", tfloat32=False, has_bias=False, has_residual=False, has_relu=False,
)  # fmt: skip
SHAPES: tuple[dict[str, object], ...] = (
    {}, {"size": (112, 112), "channels": 8, "taps": (7, 7), "strides": (2, 2), "before": (3, 3), "after": (3, 3)},
    {"size": (57, 57), "strides": (2, 2), "before": (0, 0)}, {"dilations": (2, 2), "images": 2, "made": 96},
    {"taps": (1, 1), "before": (0, 0), "after": (0, 0)}, {"channels": 24, "made": 40},
)  # fmt: skip
BEHIND: tuple[dict[str, object], ...] = (
    {}, {"has_bias": True}, {"has_bias": True, "has_relu": True},
    {"has_bias": True, "has_residual": True, "has_relu": True},
)  # fmt: skip


@pytest.mark.skipif(LIBRARY is None or COMPILER is None, reason="there is no cuDNN, or no compiler")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_it_has_engines_for_all_of_them(arch: str, tmp_path: Path) -> None:
    """Of those that it ranks, in no more workspace than it is given; the first has tensor cores for nearly all
    (66 and 64 of 72 in 9.28.1; the others are small, or bound by memory)."""
    source = tmp_path / "driver.c"
    source.write_text(_DRIVER)
    made = [str(COMPILER), "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-x", "c", str(source)]
    subprocess.run([*made, "-o", str(tmp_path / "libcuda.so.1")], check=True)
    numbers = ({"dtype": "float16"}, {"dtype": "bfloat16"}, {"dtype": "float32", "tfloat32": True})
    fields = [asdict(BASE) | shape | behind | number for shape, behind, number in product(SHAPES, BEHIND, numbers)]
    asked = json.dumps({"library": LIBRARY, "arch": arch, "convolutions": fields})
    done = subprocess.run(
        [sys.executable, "-m", "tests.backends.cuda.fake.ask_cudnn"], input=asked, capture_output=True, text=True,
        check=False, env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    assert len(answers) == len(fields)
    assert not [each for each, notes in zip(fields, answers, strict=True) if notes is None]
    assert sum(api.NOTES["TENSOR_CORE"] in notes for notes in answers) > 0.85 * len(fields)
