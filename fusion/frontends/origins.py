"""Which operator of the model each binding of an imported module is a part of, for errors of the run.

The module carries it as an attribute, name of the variable to operator and node; `GuardOperands` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import tvm
from tvm import relax

from fusion.bindings import Bindings

_ORIGINS = "fusion.origins"


@dataclass
class Origins:
    """What is noted while a graph is translated: what each operator's results are called.

    Operators are translated one after another, so those bindings are parts of an operator that stand between the last
    result of the one before it and its own.
    """

    _of_results: dict[relax.Var, str] = field(default_factory=dict, init=False)

    def note(self, result: object, where: str) -> None:
        """Note that the operator that errors name `where` computes `result`, unless it is another's result already."""
        if isinstance(result, relax.Var):
            self._of_results.setdefault(result, where)

    def attach(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Return `mod` with the origins of the bindings of `main`."""
        found: dict[str, str] = {}
        names: list[str] = []
        for var in Bindings.of(mod["main"]).values:
            names.append(str(var.name))
            where = self._of_results.get(var)
            if where is not None:
                found.update(dict.fromkeys(names, where))
                names.clear()
        return mod.with_attr(_ORIGINS, found)


def origins_of(mod: tvm.IRModule) -> Mapping[str, str]:
    """Return the origins that `mod` carries, by names of variables."""
    carried = mod.attrs[_ORIGINS] if mod.attrs and _ORIGINS in mod.attrs else {}
    return {str(name): str(where) for name, where in carried.items()}


def all_origins(mod: tvm.IRModule) -> dict[str, str]:
    """Return the origins that an imported `mod` carries, with that of its result, which has a variable of its own."""
    origins, body = dict(origins_of(mod)), mod["main"].body
    result = body.blocks[-1].bindings[-1] if body.blocks and body.blocks[-1].bindings else None
    if isinstance(result, relax.VarBinding) and isinstance(result.value, relax.Var) and result.value.name in origins:
        origins[result.var.name] = origins[result.value.name]
    return origins


def without_origins(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` without what it carries of its origins."""
    return mod.without_attr(_ORIGINS) if mod.attrs and _ORIGINS in mod.attrs else mod
