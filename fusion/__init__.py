"""fusion: compile a trained model into the fastest program it can find for this machine.

Users import this package and nothing else. Names load on first use, so `import fusion` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fusion.errors import FusionError
from fusion.system.first_imports import importing

if TYPE_CHECKING:
    from fusion.api import compile
    from fusion.compiled_module import CompiledModule
    from fusion.convert_model import convert
    from fusion.load_saved import load
    from fusion.machine_tuning.tune import tune_machine
    from fusion.model_tuning.tune import tune

__version__ = "0.1.0"
__all__ = ["CompiledModule", "FusionError", "__version__", "compile", "convert", "load", "tune", "tune_machine"]

_HOME = {
    "compile": "fusion.api",
    "convert": "fusion.convert_model",
    "load": "fusion.load_saved",
    "tune": "fusion.model_tuning.tune",
    "tune_machine": "fusion.machine_tuning.tune",
    "CompiledModule": "fusion.compiled_module",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fusion' has no attribute {name!r}")
    with importing():
        if name in ("compile", "convert", "tune", "tune_machine"):
            # Before the first import of tvm, which would bring PyTorch with it.
            import_module("fusion.runtime").import_compiler()
        globals()[name] = value = getattr(import_module(_HOME[name]), name)
    return value
