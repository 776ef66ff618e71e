"""The compiled module: build, run, save, load, explain, profile."""

from __future__ import annotations

from fusion.module.compiled import CompiledModule

__all__ = ["CompiledModule"]
