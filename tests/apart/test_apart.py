"""What a process that tries libraries says of them, and what is remembered: commands stand for it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import helper

import fusion
from fusion.apart import answer, broken, openings, process, saved_parts
from fusion.apart.imports import Import
from fusion.apart.openings import Opening, open_apart
from fusion.apart.process import OtherProcess, asking_apart
from fusion.apart.questions import LibraryQuestion
from fusion.apart.saved_parts import open_saved_apart
from fusion.errors import ExecutionError
from fusion.passes import answer_trial
from fusion.system.file_locks import try_lock
from tests.module.small_models import FLOAT, model
from tuning import measuring_session
from tuning.measuring_session import Results
from tuning.messages import ServerLostError

ANSWERS = """
import os, sys, time
from tuning.messages import Decision, Lost, MeasuredNetwork, Trial, Trying, write_answer
for line in sys.stdin:
    DOES
    print(write_answer(MeasuredNetwork((Decision(0, 1.0, 1.0, 2),), 2.0, 1.0)), flush=True)
"""
CRASHES = "print(write_answer(Trying(Trial(0, 0))), flush=True); os._exit(1)"
LACKS_MEMORY = "print(write_answer(Lost('MemoryError: ')), flush=True); continue"


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broken, "failures", {})
    monkeypatch.setattr(openings, "_opened", {})


def opens(monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """Have a process that does something open a part."""
    monkeypatch.setattr(process, "_COMMAND", ANSWERS.replace("DOES", does))
    open_apart("library", b"part", 1)


def test_each_thread_asks_a_process_of_its_own() -> None:
    def held() -> object:
        with asking_apart() as other, asking_apart() as again:
            assert other is again
            return other

    with ThreadPoolExecutor(1) as pool, asking_apart() as mine:
        assert held() is mine
        assert pool.submit(held).result() is not mine


def test_the_files_of_a_killed_process_are_removed_by_the_next() -> None:
    with asking_apart() as other:
        handle = os.open(other.folder / ".held", os.O_RDWR)
        assert not try_lock(handle)
        os.close(handle)


def test_a_library_that_crashes_is_asked_for_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for does in (CRASHES, "pass"):
        with pytest.raises(ExecutionError, match="it crashed or hung"):
            opens(monkeypatch, does)


@pytest.mark.parametrize("does", ["os._exit(1)", LACKS_MEMORY])
def test_what_is_not_the_fault_of_a_library_is_not_remembered(does: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ExecutionError, match="it could not be tried"):
        opens(monkeypatch, does)
    opens(monkeypatch, "pass")


def test_a_process_that_ends_before_it_begins_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = repr(str(tmp_path / "tried"))
    opens(monkeypatch, f"os.path.exists({tried}) or (os.mkdir({tried}), os._exit(1))")


def test_opening_may_take_longer_than_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring_session, "_PATIENCE_S", 0.01)
    opens(monkeypatch, "time.sleep(0.1)")


@pytest.mark.parametrize(("does", "is_told"), [("time.sleep(0.5)", True), ("pass", False)])
def test_who_waits_long_is_told_for_whom(
    does: str, is_told: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(process, "_COMMAND", ANSWERS.replace("DOES", does))
    with asking_apart() as other:
        other.ask(Import("library"))  # it has started
        caplog.clear()
        monkeypatch.setattr(Import, "silence_s", 0.2)
        other.ask(Import("library"))
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == is_told
    for each in told:
        assert each.startswith("the backend 'library' was asked to be imported in another process 0 s ago and has not")
        assert "after 300 s" in each


@pytest.mark.parametrize("error", [MemoryError(), OSError("no room")])
def test_a_lack_of_memory_or_room_says_nothing_of_a_library(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    (tmp_path / "exported").write_bytes(b"part")
    Opening("library", str(tmp_path / "exported"), 1).write(tmp_path / "question")
    monkeypatch.setattr(openings, "host_library", lambda _: SimpleNamespace(open=fail))
    with pytest.raises(ServerLostError, match=type(error).__name__):
        answer._answer(tmp_path / "question", ())


def test_one_match_of_a_library_without_a_version_is_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    exported: list[str] = []

    def export(function: str) -> bytes:
        exported.append(function)
        return b""

    library: Any = SimpleNamespace(export=export)
    mod: Any = None
    monkeypatch.setattr(answer_trial, "find_matches", lambda *_: (None, {"f": "first", "g": "second"}))
    assert answer_trial._export_part(library, mod) == b""
    assert exported == ["first"]


def test_a_part_that_was_opened_on_this_machine_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(does: str, version: str) -> None:
        monkeypatch.setattr(process, "_COMMAND", ANSWERS.replace("DOES", does))
        monkeypatch.setattr(openings, "_opened", {})
        monkeypatch.setattr(saved_parts, "library", lambda _: SimpleNamespace(version=version))
        open_saved_apart("library:of a part", b"part", 1)

    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FUSION_CACHE_SIZE", "1M")
    load("os._exit(1)", "1")  # before it begins: nothing is known
    load("pass", "1")
    load(CRASHES, "1")
    with pytest.raises(ExecutionError, match="cannot open its part") as raised:
        load(CRASHES, "2")
    assert "it crashed or hung while it opened a part" in raised.value.why


def test_one_process_opens_the_parts_of_all_forms_of_a_saved_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proto = model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, ["rows"])], [("y", FLOAT, ["rows"])])
    module = fusion.compile(proto, backends=["onnxruntime", "cpu"], threads=1, cache=False, dynamic=False)
    for rows in (2, 3):
        module(np.zeros(rows, dtype=np.float32), wait=True)
    module.save(tmp_path / "saved.fusion")
    asked: list[OtherProcess] = []

    def ask(other: OtherProcess, _: LibraryQuestion) -> Results:
        asked.append(other)
        return Results()

    monkeypatch.setattr(OtherProcess, "ask", ask)
    monkeypatch.setattr(openings, "_opened", {})
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "cache"))
    loaded = fusion.load(tmp_path / "saved.fusion")
    assert len(loaded.specializations) == len(asked) == 2
    assert asked[0] is asked[1]
    np.testing.assert_array_equal(loaded(np.array([-1, 2], dtype=np.float32), wait=True)[0], [0, 2])
