"""Writes the pages of the docs that are tables of the code: `python -m tests.tables`."""

from __future__ import annotations

from tests.tables import DOCS, PAGES

if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
        print(f"wrote docs/{name}")
