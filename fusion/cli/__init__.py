"""The `fusion` command: each verb is a thin face of one public function."""

from __future__ import annotations

from fusion.cli.main import main

__all__ = ["main"]
