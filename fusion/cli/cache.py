"""`fusion cache`: what is kept of compiled models, and deleting it."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any

from fusion.cache import Store, find_place
from fusion.cli.exit_codes import OK
from fusion.cli.options import add_json, add_verb
from fusion.cli.output import show
from fusion.errors import OptionError

_CLEAR = "clear"


def add_parser(verbs: Any) -> None:
    """Add the verb."""
    parser = add_verb(verbs, "cache", f"[{_CLEAR}] ", "show or clear the cache of compiled models")
    parser.add_argument("action", nargs="?", choices=[_CLEAR], help="delete all entries")
    add_json(parser)
    parser.set_defaults(verb=cache)


def cache(options: argparse.Namespace) -> int:
    """Print where the cache is and what it holds, or delete that."""
    place = find_place()
    if place is None:
        show("the cache is off", {"folder": None}, options.json)
        return OK
    store = Store(place)
    if options.action == _CLEAR:
        return _clear(store, store.refusal(), options.json)
    reason = store.make()
    entries = store.entries()
    size = sum(entry.size for entry in entries)
    count = Counter(entry.path.suffix[1:] for entry in entries)
    state = f"not used: {reason}" if reason else "used"
    text = "\n".join(
        [
            f"folder   {place.folder} ({state})",
            f"models   {count['fusion']}",
            f"kernels  {count['kernel']}",
            f"size     {size / 1e6:,.1f} MB of {place.most_bytes / 1e6:,.0f}",
        ]
    )
    data = {
        "folder": str(place.folder), "refused": reason, "models": count["fusion"], "kernels": count["kernel"],
        "bytes": size, "most_bytes": place.most_bytes,
    }  # fmt: skip
    show(text, data, options.json)
    return OK


def _clear(store: Store, reason: str, as_json: bool) -> int:
    if reason:
        raise OptionError("the cache is not cleared", why=reason, hint="delete the folder yourself")
    try:
        deleted = store.clear()
    except OSError as error:
        raise OptionError("the cache is not cleared", why=str(error), hint="delete the folder yourself") from error
    size = sum(entry.size for entry in deleted)
    show(
        f"deleted {len(deleted)} files of {size / 1e6:,.1f} MB in {store.place.folder}",
        {"folder": str(store.place.folder), "deleted": len(deleted), "bytes": size}, as_json,
    )  # fmt: skip
    return OK
