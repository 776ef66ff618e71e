"""Torch is told of composite operators what it finds itself when it looks through all of them."""

from __future__ import annotations

from typing import Any

import torch
from torch._export import utils
from torch.export import exported_program

from fusion.frontends.torch.decompositions import decompositions


def test_those_of_the_dispatcher_are_found_whenever_they_are_registered() -> None:
    decompositions()
    before = exported_program._collect_all_valid_cia_ops()
    with torch.library._scoped_library("fusion_composites", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.define("thrice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
        library.impl("thrice", lambda x: x + x + x, "CompositeExplicitAutograd")
        after = exported_program._collect_all_valid_cia_ops()
        assert {str(operator) for operator in after - before} == {"fusion_composites.twice.default"}
    assert exported_program._collect_all_valid_cia_ops() == before


def test_all_of_the_dispatcher_are_found_that_may_be_kept() -> None:
    decompositions()
    found = exported_program._collect_all_valid_cia_ops()
    listed = map(_overload, torch._C._dispatch_get_registrations_for_dispatch_key("CompositeImplicitAutograd"))
    kept = {operator for operator in listed if utils._is_preservable_cia_op(operator)}
    assert torch.ops.aten.linear.default in kept
    assert kept <= found
    assert all(map(utils._is_preservable_cia_op, found))


def _overload(name: str) -> Any:
    namespace, _, rest = name.partition("::")
    operator, _, overload = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), operator), overload or "default")
