"""Chooses who runs a model by measuring it, for `effort="balanced"`: our kernels alone, or with a library's regions."""
