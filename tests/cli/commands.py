"""Run a command in this process."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fusion.cli import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr."""
    code = main([str(argument) for argument in arguments])
    return (code, *capsys.readouterr())


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, Any]:
    """Return exit code and what `--json` printed."""
    code, out, _ = run(capsys, *arguments, "--json")
    return code, json.loads(out)
