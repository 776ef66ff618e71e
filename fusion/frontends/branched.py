"""A model with branches as one module: `main`, and beside it what computes each branch, under its name."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax
from tvm.ir import GlobalVar

from fusion.declined import Declined

MAIN = "main"


def join_branches(mod: tvm.IRModule, branches: Mapping[str, tvm.IRModule]) -> tvm.IRModule:
    """Return `mod` with the `main` of each branch as the function of its name.

    Raises:
        Declined: A branch has more functions than that, which may have names of others.
    """
    if not branches:
        return mod
    if any(len(branch.functions) > 1 for branch in branches.values()):
        raise Declined("a branch of it has loops of its own")
    return tvm.IRModule({**mod.functions, **{GlobalVar(name): branch[MAIN] for name, branch in branches.items()}})


def split_branches(mod: tvm.IRModule) -> tuple[tvm.IRModule, dict[str, tvm.IRModule]]:
    """Return the module without its branches, and these, each with a `main`, in the order of their names."""
    functions = {symbol.name_hint: func for symbol, func in mod.functions.items()}
    names = sorted(name for name, func in functions.items() if isinstance(func, relax.Function) and name != MAIN)
    if not names:
        return mod, {}
    kept = tvm.IRModule({symbol: func for symbol, func in mod.functions.items() if symbol.name_hint not in names})
    return kept, {name: tvm.IRModule({GlobalVar(MAIN): functions[name]}) for name in names}


def graphs_of(mod: tvm.IRModule) -> list[relax.Function]:
    """Return the branches in the order of their names, then `main`."""
    kept, branches = split_branches(mod)
    return [each[MAIN] for each in (*branches.values(), kept)]
