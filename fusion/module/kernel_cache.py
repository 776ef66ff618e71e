"""Object files of kernels in the cache on disk: a model with other weights, or another end, has most of them already.

A kernel is known by its PrimFunc before it got its loops, a tenth of what it is with them. The loops follow from that
and the context; a structural hash of them, of 64 bits, is in the key in case they do not.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx

from backends.tensorir.schedule_kernels import SOURCE
from fusion.cache import Store
from fusion.context import Context
from fusion.module.code_key import decided_by, key_of

_DIGEST_BYTES = 32
_log = logging.getLogger("fusion.cache")


@dataclass(frozen=True)
class KernelCache:
    """The object files of one compilation.

    Attributes:
        store: Where they are.
        decided: Checksum of what decides the code of all of them.
    """

    store: Store
    decided: str

    def key(self, symbol: tvm.ir.GlobalVar, func: tirx.PrimFunc) -> str | None:
        """Return the key of a kernel; None for a function that is made for one model, such as its `main`."""
        source = func.attrs.get(SOURCE) if func.attrs else None
        if source is None:
            return None
        loops = tvm_ffi.structural_hash(func)
        return key_of({"decided": self.decided, "name": symbol.name_hint, "source": str(source), "loops": loops})

    def find(self, key: str) -> bytes | None:
        """Return the object file of a kernel, None where there is none."""
        data = self.store.read(_name(key))
        if data is None:
            return None
        digest, code = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
        if hashlib.sha256(key.encode() + code).digest() != digest:
            self.store.drop(_name(key), "its checksum does not match")
            return None
        return code

    def keep(self, key: str, code: bytes) -> None:
        """Keep the object file of a kernel."""
        digest = hashlib.sha256(key.encode() + code).digest()
        self.store.write(_name(key), len(code), lambda file: file.writelines((digest, code)), make_room=False)

    def make_room(self) -> None:
        """Drop what was used longest ago, where the cache is full."""
        self.store.make_room()


def open_kernels(ctx: Context) -> KernelCache | None:
    """Return the cache of `ctx` for kernels; None where it is off, or our sources cannot be read."""
    if ctx.cache is None:
        return None
    try:
        decided = key_of(decided_by(ctx))
    except (OSError, TypeError, ValueError) as error:
        _log.info("kernels have no keys, and are not looked for: %s", error)
        return None
    return KernelCache(Store(ctx.cache), decided)


def _name(key: str) -> str:
    return f"{key}.kernel"
