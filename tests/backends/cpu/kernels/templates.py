"""The list of templates with one of them changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from backends.cpu.kernels import priority


@contextmanager
def changed(name: str, **fields: Any) -> Iterator[None]:
    """Let the template `name` have other `fields`."""
    templates = tuple(replace(each, **fields) if each.name == name else each for each in priority.TEMPLATES)
    with mock.patch.object(priority, "TEMPLATES", templates):
        yield
