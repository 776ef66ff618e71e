"""What importing the compiler and compiling leave out: looking for garbage, and asking TVM for the same names again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import tvm_ffi

import fusion
from fusion.runtime import _listing_names_once
from fusion.system.collector import paused, seldom


@contextmanager
def looking_for_garbage_at(first: int) -> Iterator[tuple[int, int, int]]:
    """Have Python look for garbage after so many new objects inside; gives all its numbers."""
    before = gc.get_threshold()
    gc.set_threshold(first, *before[1:])
    try:
        yield gc.get_threshold()
    finally:
        gc.set_threshold(*before)


def test_garbage_is_collected_again_behind_it() -> None:
    with paused():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_who_has_turned_the_collector_off_finds_it_off() -> None:
    gc.disable()
    try:
        with paused():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_garbage_is_looked_for_as_often_as_before_behind_what_has_it_looked_for_seldom() -> None:
    with looking_for_garbage_at(700) as before:
        with seldom():
            assert gc.get_threshold()[0] > before[0]
        assert gc.get_threshold() == before


@pytest.mark.parametrize("first", [0, 100_000])
def test_who_never_or_hardly_ever_looks_for_garbage_does_so_inside(first: int) -> None:
    with looking_for_garbage_at(first) as before, seldom():
        assert gc.get_threshold() == before


def test_a_function_that_was_added_meanwhile_is_among_the_names() -> None:
    ask = tvm_ffi.registry.list_global_func_names
    with _listing_names_once():
        before = tvm_ffi.registry.list_global_func_names()
        assert tvm_ffi.registry.list_global_func_names() == before == ask()
        tvm_ffi.register_global_func("test.added_meanwhile", lambda: None)
        try:
            assert "test.added_meanwhile" in tvm_ffi.registry.list_global_func_names()
        finally:
            tvm_ffi.registry.remove_global_func("test.added_meanwhile")
    assert tvm_ffi.registry.list_global_func_names is ask


def test_names_of_the_package_are_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known = fusion.compile
    monkeypatch.setattr(fusion, "import_module", lambda _: pytest.fail("it is imported again"))
    assert fusion.compile is known
