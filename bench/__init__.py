"""How fusion is measured: the zoo, the peers, the protocol, the machine's limits and the report.

    bench.compare_model("model.onnx", shapes={"x": (1, 3, 224, 224)}).table()

`python -m bench` runs the whole zoo. Names load on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.protocol import compare_model
    from bench.result import ComparisonResult

__all__ = ["ComparisonResult", "compare_model"]

_HOME = {"compare_model": "bench.protocol", "ComparisonResult": "bench.result"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bench' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
