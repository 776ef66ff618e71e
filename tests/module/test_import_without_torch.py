"""TVM is imported without PyTorch, and nobody else notices; ONNX Runtime where it is needed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import onnx

from tests.module import small_models

ROOT = Path(__file__).parents[2]
# Looks for PyTorch as tvm does, and so does another thread while this is being imported.
_GREEDY = """
import threading
found = []

def look():
    try:
        import torch
    except ImportError:
        found.append("none")
    else:
        found.append(torch.__version__)

look()
thread = threading.Thread(target=look)
thread.start()
thread.join()
"""


def test_only_the_importing_thread_finds_no_torch_and_only_meanwhile(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("__version__ = 'a torch'\n")
    (tmp_path / "greedy.py").write_text(_GREEDY)
    code = (
        "import sys, fusion.runtime; print('torch' in sys.modules);"
        "print(fusion.runtime._import_without_torch('greedy').found, sys.modules.get('torch') is None);"
        "import torch; print(torch.__version__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["False", "['none', 'a torch'] False", "a torch"]


def test_a_model_that_needs_none_of_onnxruntime_is_compiled_without_loading_it(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(small_models.mlp(), path)
    code = (
        f"import sys, fusion; fusion.compile({str(path)!r}, shapes={{'x': (3, 8)}}, cache=False);"
        "print('onnxruntime' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stdout.splitlines() == ["False"]
