"""What TVM 0.17 wrote and computed: outputs, and the type of every binding."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fusion
from fusion.frontends.relay.parse import parse
from fusion.frontends.relay.scope import BindingScope, Value
from fusion.frontends.relay.translate import translate
from fusion.frontends.relay.types import describe
from tests.frontends.relay.recorded import NAMES, recorded

BINDING = re.compile(r"^  (?:let )?%(\w+)\b[^=]*= .*/\* ty=(.*?) \*/;$", re.MULTILINE)


@pytest.mark.parametrize("name", NAMES)
def test_types(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made: dict[str, str] = {}
    bind = BindingScope.bind

    def noting(scope: BindingScope, what: str, value: Value) -> BindingScope:
        made[what] = describe(value)
        return bind(scope, what, value)

    monkeypatch.setattr(BindingScope, "bind", noting)
    model = recorded(name)
    translate(parse(model.text), model.params, {})
    declared = {what: kind.rpartition("/* ty=")[2] for what, kind in BINDING.findall(model.text)}
    assert declared
    assert {what: made[what] for what in declared} == declared


@pytest.mark.parametrize("name", NAMES)
def test_compiled(name: str) -> None:
    model = recorded(name)
    module = fusion.compile(model.text, params=model.params, effort="fast", threads=1)
    for got, want in zip(module(*model.inputs.values()), model.outputs, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-5)
