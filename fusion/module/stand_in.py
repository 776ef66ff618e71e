"""Answers calls of a module with a new shape while their form is being compiled: the whole model on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fusion.errors import ExecutionError, FusionError, InputError
from fusion.failures import report
from fusion.module.input_slot import check_array
from fusion.module.program import Program
from fusion.signature import TensorSpec
from fusion.system.forks import Lock


class StandIn:
    """The whole model on ONNX Runtime, open while it is needed: it holds the model's weights once more."""

    def __init__(self, make: Callable[[], Program | None], outputs: tuple[TensorSpec, ...]) -> None:
        """`make` returns the program, or None where the model has none; `outputs` are the module's."""
        self._make = make
        self._outputs = outputs
        self._program: Program | None = None
        self._lock = Lock()
        self.lacking = False
        """Whether it is known that the model has none."""

    def open(self) -> Program | None:
        """Return the program, which one caller opens; None where the model has none."""
        with self._lock:
            if self._program is None and not self.lacking:
                self._program = self._made()
                self.lacking = self._program is None
            return self._program

    @property
    def is_open(self) -> bool:
        """Whether it answers calls now."""
        return self._program is not None

    def close(self) -> None:
        """Free the program once the calls that use it are done."""
        self._program = None

    def _made(self) -> Program | None:
        try:
            return self._make()
        except FusionError:  # ONNX Runtime does not take the model, or its file is gone, of which compiling will tell
            return None
        except Exception as error:  # a defect, or what protobuf raises of a large model: callers wait instead
            report("opening the whole model on ONNX Runtime failed", error)
            return None

    def answering(self, program: Program, otherwise: Callable[[Sequence[Any]], Program]) -> Program:
        """Return `program`, in whose place that for the arrays by `otherwise` runs where it fails or answers with other
        than what the model declares: what a compiled form would do then, only compiling it tells."""
        return _Answering(program, otherwise, self._outputs)


class _Answering:
    """See `StandIn.answering`."""

    def __init__(
        self, program: Program, otherwise: Callable[[Sequence[Any]], Program], outputs: tuple[TensorSpec, ...]
    ) -> None:
        self._program, self._otherwise, self._outputs = program, otherwise, outputs

    def run(self, arrays: Sequence[Any]) -> tuple[np.ndarray, ...]:
        """See `Program.run`."""
        try:
            results = self._program.run(arrays)
            for result, spec in zip(results, self._outputs, strict=True):
                if spec.is_tensor:
                    check_array(result, spec)
            return results
        except (ExecutionError, InputError):
            return self._otherwise(arrays).run(arrays)
