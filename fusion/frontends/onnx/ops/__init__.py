"""Converters by operator family; `registry.py` loads every module of this folder that it lists."""
