"""The limits of this machine, measured once and kept in the cache on disk."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import time
from typing import Any

from backends.machine_limits import Level, MachineLimits
from fusion.cache import Store, find_place
from fusion.runtime import TVM_VERSION, import_compiler
from fusion.system.cpus import allowed_cpus, cpu_model, cpu_quota

_VALID_S = 30 * 24 * 3600.0
"""A machine, or who shares it, changes."""
_METHOD = 1
"""Of `measure_limits`: results of another one are not used."""


def known_limits(threads: int) -> MachineLimits:
    """Return the limits with `threads` threads; measuring them takes two seconds, once in a month on one machine.

    Raises:
        NotInstalledError: They have to be measured, which takes the compiler.
    """
    place = find_place()
    if place is None:
        return _measure(threads)
    store, name = Store(place), f"{_key(threads)}.limits"
    limits = _read(store, name)
    if limits is None:
        limits = _measure(threads)
        data = json.dumps({"measured": time.time(), **dataclasses.asdict(limits)}).encode()
        store.write(name, len(data), lambda file: file.write(data))
    return limits


def _measure(threads: int) -> MachineLimits:
    import_compiler()
    from fusion.report.measure_limits import measure_limits

    return measure_limits(threads)


def _key(threads: int) -> str:
    about = [_METHOD, threads, allowed_cpus(), cpu_quota(), cpu_model(), TVM_VERSION]
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def _read(store: Store, name: str) -> MachineLimits | None:
    data = store.read(name)
    if data is None:
        return None
    try:
        fields: dict[str, Any] = json.loads(data)
        if not 0 <= time.time() - float(fields["measured"]) < _VALID_S:
            return None
        levels = tuple(Level(str(one["name"]), int(one["bytes"]), float(one["gbs"])) for one in fields["levels"])
        limits = MachineLimits(int(fields["threads"]), float(fields["peak_gflops"]), levels)
        if not (levels and limits.peak_gflops > 0 and all(level.gbs > 0 for level in levels)):
            raise ValueError("a limit is not positive")
    except (ValueError, TypeError, KeyError) as error:
        store.drop(name, str(error))
        return None
    return limits
