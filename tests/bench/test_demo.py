"""The demo's pipeline reads the demo's page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime

from bench.demo.image import LINES, UPSIDE_DOWN, sample
from bench.demo.reader import Network, Reader


def onnxruntime_network(path: Path) -> Network:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda data: np.asarray(session.run(None, {"x": data})[0])


def test_the_page_is_read_word_for_word() -> None:
    reader = Reader(onnxruntime_network)
    lines = reader.read(sample())
    assert [line.text for line in lines] == [*LINES, UPSIDE_DOWN]
    assert min(line.score for line in lines) > 0.9
    assert reader.inputs["recognition"].shape[3] % 64 == 0


def test_a_page_without_text_has_no_lines() -> None:
    assert Reader(onnxruntime_network).read(np.full((200, 300, 3), 255, np.uint8)) == []
