"""Reasons why there is no entry, in place of one: a process need not find out what another one has."""

from __future__ import annotations

import hashlib
import json

from fusion.cache.store import Store


def find_reason(store: Store, key: str) -> str | None:
    """Return why there is no entry of this key; None where that is not known."""
    data = store.read(_name(key))
    if data is None:
        return None
    try:
        kept = json.loads(data)
        reason = str(kept["reason"])
        if kept["digest"] == _digest(key, reason):
            return reason
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    store.drop(_name(key), "its checksum does not match")
    return None


def keep_reason(store: Store, key: str, reason: str) -> None:
    """Keep why there is no entry of this key."""
    data = json.dumps({"reason": reason, "digest": _digest(key, reason)}).encode()
    store.write(_name(key), len(data), lambda file: file.write(data))


def _digest(key: str, reason: str) -> str:
    return hashlib.sha256(f"{key} {reason}".encode()).hexdigest()


def _name(key: str) -> str:
    return f"{key}.reason"
