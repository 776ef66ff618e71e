"""Asks ONNX Runtime and fusion whether they take a model, in a process that may crash or hang."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

SECONDS = 30.0


@dataclass(frozen=True)
class Answer:
    """What an engine made of a model.

    Attributes:
        verdict: "runs", "deferred" (fusion leaves it to ONNX Runtime), "refused", "crash", "hang" or, of fusion,
            "untyped" for an error that is no FusionError, and F901.
        why: The error's text.
        kinds: The element types of ONNX's that the outputs have, where ONNX Runtime runs it.
    """

    verdict: str
    why: str = ""
    kinds: tuple[int, ...] = ()


class Engine:
    """A process that answers for one engine ("onnxruntime" or "fusion"); another takes its place when it dies."""

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._start()

    def ask(self, model: bytes, values: dict[str, np.ndarray]) -> Answer:
        """Return what the engine makes of `model`."""
        self._pipe.send((model, values))
        try:
            if self._pipe.poll(SECONDS):
                return self._pipe.recv()  # type: ignore[no-any-return]
            verdict = "hang"
        except (EOFError, ConnectionError):
            verdict = "crash"
        self.close()
        self._start()
        return Answer(verdict)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.join()
        self._pipe.close()

    def _start(self) -> None:
        context = get_context("spawn")
        self._pipe, other = context.Pipe()
        self._process = context.Process(target=_serve, args=(self._engine, other), daemon=True)
        self._process.start()
        other.close()


def _serve(engine: str, pipe: Connection) -> None:
    warnings.simplefilter("ignore")
    ask = {"onnxruntime": ask_onnxruntime, "fusion": ask_fusion}[engine]
    while True:
        try:
            question = pipe.recv()
        except EOFError:
            return
        pipe.send(ask(*question))


def ask_onnxruntime(model: bytes, values: dict[str, np.ndarray]) -> Answer:
    """Load and run `model`."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        session.run(None, {value.name: values[value.name] for value in session.get_inputs()})
    except Exception as error:  # bindings raise a class for each status
        return Answer("refused", _line(error))
    return Answer("runs", kinds=tuple(_element(value.type) for value in session.get_outputs()))


def _element(kind: str) -> int:
    """Return ONNX's number of "tensor(float)"."""
    from onnx import TensorProto

    name = kind.removeprefix("tensor(").removesuffix(")").upper()
    return int(TensorProto.DataType.Value(name)) if name in dict(TensorProto.DataType.items()) else 0


def ask_fusion(model: bytes, values: dict[str, np.ndarray]) -> Answer:
    """Import `model`."""
    import onnx

    from fusion.errors import FusionError, InternalError
    from fusion.frontends import import_model

    try:
        imported = import_model(onnx.ModelProto.FromString(model))
    except InternalError as error:
        return Answer("untyped", _line(error))
    except FusionError as error:
        return Answer("refused", f"{error.code} {error.what} | {error.where} | {error.why}")
    except Exception as error:  # whatever it is, it is not what a user should see
        return Answer("untyped", f"{type(error).__name__}: {_line(error)}")
    if imported.fallbacks:
        return Answer("deferred", "; ".join(f"{item.op}: {item.reason}" for item in imported.fallbacks))
    return Answer("runs")


def _line(error: Any) -> str:
    return " ".join(str(error).split())[:300]
