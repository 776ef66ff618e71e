"""Short texts of the cache, such as why there is no form of a model: a process need not find out what another has."""

from __future__ import annotations

import hashlib
import json

from fusion.cache.store import Store


def find_text(store: Store, name: str) -> str | None:
    """Return the text of the entry `name`; None where there is none."""
    data = store.read(name)
    if data is None:
        return None
    try:
        kept = json.loads(data)
        text = str(kept["text"])
        if kept["digest"] == _digest(name, text):
            return text
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    store.drop(name, "its checksum does not match")
    return None


def keep_text(store: Store, name: str, text: str) -> None:
    """Keep a text as the entry `name`: a sha256 in hexadecimal, and what kind of text it is behind a dot."""
    data = json.dumps({"text": text, "digest": _digest(name, text)}).encode()
    store.write(name, len(data), lambda file: file.write(data))


def _digest(name: str, text: str) -> str:
    return hashlib.sha256(f"{name} {text}".encode()).hexdigest()
