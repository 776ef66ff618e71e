"""Weights that a caller may replace for one call: a module of its own takes them as inputs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from fusion.errors import ModelFileError
from fusion.signature import TensorSpec
from fusion.system.forks import Lock

if TYPE_CHECKING:
    from fusion.compiled_module import CompiledModule


MAX_MODULES = 8
"""Modules kept; the one unused for longest goes first. Each holds weights and activations of its own, and of n weights
there are 2^n sets."""


class Overrides:
    """The weights of one model that are also its inputs, and the modules used last in which some of them are inputs.

    Without it weights are constants, folded and packed; a module in which they are not is compiled when it is needed.
    """

    def __init__(
        self, read: Callable[[], tuple[TensorSpec, ...]], make: Callable[[tuple[str, ...]], CompiledModule]
    ) -> None:
        """`read` returns the weights, `make` compiles the model with those of the given names as inputs."""
        self._read, self._make = read, make
        self._specs: tuple[TensorSpec, ...] | None = None
        self._made: OrderedDict[frozenset[str], CompiledModule] = OrderedDict()
        self._lock = Lock()

    def specs(self) -> tuple[TensorSpec, ...]:
        """Return the weights, none of which is named in `shapes=`."""
        if self._specs is None:
            self._specs = self._read()
        return self._specs

    def module(self, names: Iterable[str]) -> CompiledModule | None:
        """Return the module that takes the weights `names` as inputs; None if one of them is none of the weights, or
        the model's file, which would say so, cannot be read any more."""
        wanted = frozenset(names)
        try:
            known = tuple(spec.name for spec in self.specs())
        except ModelFileError:
            return None
        if not wanted <= set(known):
            return None
        with self._lock:
            if wanted not in self._made:
                self._made[wanted] = self._make(tuple(name for name in known if name in wanted))
                if len(self._made) > MAX_MODULES:
                    self._made.popitem(last=False)
            self._made.move_to_end(wanted)
            return self._made[wanted]
