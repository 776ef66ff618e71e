"""Translations by family of operators; `registry` imports every module here."""
