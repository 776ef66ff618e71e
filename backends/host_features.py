"""Features of CPUs as LLVM names them: those that code for a target may use, and those by which a machine differs."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
import tvm_ffi

from fusion.errors import TargetError


def features_of(target: tvm.target.Target) -> frozenset[str]:
    """Return LLVM's names of the features that code for `target` may use.

    Raises:
        TargetError: LLVM does not accept the target.
    """
    try:
        with target:
            found = tvm_ffi.get_global_func("target.llvm_get_cpu_features")(target)
    except Exception as error:  # LLVM checks some options only now
        raise TargetError("LLVM does not accept the target", why=str(error).splitlines()[-1][:300]) from error
    return frozenset(str(name) for name in found)


def differing_features(cpu: str, here: Mapping[str, bool]) -> list[str]:
    """Return what CPUs of this name lack and a machine with them has, and the reverse, as attributes of a target.

    LLVM names a CPU by its model alone, of which a hypervisor hides features, AMX most of all, or which it makes up:
    AMX has been seen under the number of a Rocket Lake. A model that is newer than LLVM is an "x86-64" to it.

    Args:
        here: Whether the machine has a feature, by LLVM's names.
    """
    implied = features_of(tvm.target.Target({"kind": "llvm", "mcpu": cpu}))
    # As the runtime hands it over, its keys and values are TVM's.
    has = {str(name): bool(value) for name, value in here.items()}
    shown = {name for name in has if has[name]} - implied
    return [f"+{name}" for name in sorted(shown)] + [f"-{name}" for name in sorted(implied) if not has.get(name, True)]
