"""Kernels scheduled by given templates, and the list of templates with one of them changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from tvm import tirx

from backends.cpu.kernels import priority
from backends.cpu.kernels.template import Template
from backends.cpu.machine import Machine
from backends.cpu.schedule import _default_of, _first
from backends.tensorir.result import Scheduled


@contextmanager
def changed(name: str, **fields: Any) -> Iterator[None]:
    """Let the template `name` have other `fields`."""
    templates = tuple(replace(each, **fields) if each.name == name else each for each in priority.TEMPLATES)
    with mock.patch.object(priority, "TEMPLATES", templates):
        yield


def schedule_with(
    templates: Sequence[Template[Any, Any]], func: tirx.PrimFunc, machine: Machine, threads: int
) -> Scheduled:
    """Return `func` scheduled by the first of `templates` that does not decline; the note says why those before did."""
    return _first([_default_of(template, func, machine, threads) for template in templates], func, machine)
