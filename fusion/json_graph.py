"""The JSON that TVM writes of its objects: a list of nodes, in whose data whole numbers are the places of others."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from tvm_ffi.core import TypeInfo, _lookup_or_register_type_info_from_type_key

Node = dict[str, Any]


def references(node: Node) -> list[tuple[Any, int]]:
    """Return what in `node` is the place of another node, with its key or position."""
    data = node.get("data")
    if isinstance(data, dict):
        plain = _plain_fields(node["type"])
        return [(key, value) for key, value in data.items() if type(value) is int and key not in plain]
    return [(key, value) for key, value in enumerate(data) if type(value) is int] if isinstance(data, list) else []


@cache
def _plain_fields(type_key: str) -> frozenset[str]:
    """Return the fields of a type of node that hold a number itself, and not the place of its node."""
    kind: TypeInfo | None = _lookup_or_register_type_info_from_type_key(type_key)
    found: set[str] = set()
    while kind is not None:
        schemas = {each.name: json.loads(each.metadata["type_schema"])["type"] for each in kind.fields}
        found |= {name for name, schema in schemas.items() if schema == "int"}
        kind = kind.parent_type_info
    return frozenset(found)
