"""Options of the API with values that are not allowed."""

from __future__ import annotations

from typing import Any

import pytest
import tvm
from onnx import helper

import fusion
from fusion.errors import FusionError, OptionError, ShapeError, TargetError, UnsupportedOperatorError
from tests.module import small_models


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"effort": "extreme"}, OptionError, "extreme"),
        ({"effort": "balanced", "target": "llvm -mcpu=x86-64"}, OptionError, "not this machine's CPU"),
        ({"effort": "most"}, OptionError, "unknown effort"),
        ({"backends": ["cuda"]}, OptionError, "'cpu' is our own kernels, those of CUDA targets too"),
        ({"precision": "fp16"}, OptionError, "itself in float16 or bfloat16 needs none"),
        ({"backends": ["cpu", "openvin"]}, OptionError, "no backend has the name 'openvin'"),
        ({"backends": "cpu"}, OptionError, "'cpu' is no list"),
        ({"backends": []}, OptionError, "names no backend"),
        ({"backends": ["cpu", " "]}, OptionError, "backends=['cpu', ' '] has an empty name in it"),
        ({"backends": ["onnxruntime"], "target": "cuda -arch=sm_80"}, OptionError, "leaves out 'cpu'"),
        ({"cache": "folder"}, OptionError, "cache='folder'"),
        ({"threads": 0}, OptionError, "threads=0"),
        ({"threads": -2}, OptionError, "threads=-2"),
        ({"threads": 10000}, OptionError, "1 to 1024"),
        ({"threads": "4"}, OptionError, "threads='4'"),
        ({"target": "gpu9000"}, TargetError, "gpu9000"),
        ({"target": ""}, TargetError, "not available"),
        ({"target": "llvm -mtriple=no-such-thing"}, TargetError, "no target 'no-such-thing'"),
        ({"target": "llvm -mcpu"}, TargetError, "-mcpu"),
        ({"target": 7}, TargetError, "int"),
        ({"shapes": {"nothing": (1,)}}, ShapeError, "'nothing'"),
        ({"shapes": {"x": (3, 9)}}, ShapeError, "contradicts"),
    ],
)
def test_wrong_options(options: dict[str, Any], error: type[FusionError], word: str) -> None:
    with pytest.raises(error) as caught:
        fusion.compile(small_models.mlp(), **options)
    assert word in str(caught.value)


def test_unknown_backends_are_told_from_known_ones() -> None:
    with pytest.raises(OptionError) as caught:
        fusion.compile(small_models.mlp(), backends=["cpu", "openvin", 7])
    assert caught.value.what == "backends=['cpu', 'openvin', 7]: no backend has the name 'openvin' or 7"
    listed = caught.value.hint.removeprefix("give a list of ").split(", ")
    assert sorted(set(listed)) == sorted(listed)


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"backends": ["cpu"]}, "name 'onnxruntime' in backends= too"),
        ({"strict": True}, "compile with strict=False"),
        ({"strict": True, "backends": ["cpu"]}, "compile with strict=False and name 'onnxruntime' in backends= too"),
    ],
)
def test_a_refused_fallback_says_what_lets_it_run(options: dict[str, Any], steps: str) -> None:
    node = helper.make_node("Det", ["x"], ["y"])
    model = small_models.model([node], [("x", small_models.FLOAT, [3, 2, 2])], [("y", small_models.FLOAT, [3])], {})
    with pytest.raises(UnsupportedOperatorError, match="Det") as caught:
        fusion.compile(model, **options)
    assert caught.value.hint == f"{steps}, to run them on ONNX Runtime"


@pytest.mark.parametrize(
    ("target", "near"),
    [
        ("llvm -mcpu=foo", ""),
        ("llvm -mcpu=haswel", "haswell"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a721", "cortex-a72"),
        ({"kind": "llvm", "mcpu": "sapphirerapid"}, "sapphirerapids"),
    ],
)
def test_a_cpu_that_llvm_does_not_know(
    target: str | dict[str, str], near: str, capfd: pytest.CaptureFixture[str]
) -> None:
    given = target if isinstance(target, str) else tvm.target.Target(target)
    capfd.readouterr()
    with pytest.raises(TargetError, match="LLVM knows no CPU") as caught:
        fusion.compile(small_models.mlp(), given)
    assert near in caught.value.hint
    assert capfd.readouterr().err == ""


def test_names_of_the_package() -> None:
    assert {"compile", "load", "CompiledModule", "FusionError", "__version__"} <= set(dir(fusion))
