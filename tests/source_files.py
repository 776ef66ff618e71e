"""Files of Relax source that the compiler writes, run as an import of them does."""

from __future__ import annotations

import importlib.util
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType


def run_source(path: Path) -> ModuleType:
    """Run a Python file and return its names; in a thread, as TVM looks up the source of every frame below its
    decorators, of which a test has some sixty."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # TVM finds the source of a class by its module's name.
    sys.modules[path.stem] = module
    with ThreadPoolExecutor(1) as pool:
        pool.submit(spec.loader.exec_module, module).result()
    return module
