"""ONNX Runtime's arena ended the process where memory ended amid a Loop that keeps what every round gives."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("resource")

SCRIPT = """
import resource
import numpy as np
import onnx.parser
import fusion

model = onnx.parser.parse_model('''
<ir_version: 10, opset_import: ["": 18]>
graph (int64 rounds, bool go, float[2] x) => (float[2] last, float[n, 2] all)
{
  last, all = Loop (rounds, go, x) <body = body (int64 at, bool go, float[2] state)
    => (bool on, float[2] next, float[2] seen) { on = Identity (go) next = Add (state, state) seen = Neg (state) }>
}
''')
module = fusion.compile(model, threads=1)
operands = np.array(True), np.ones(2, "float32")
assert module(np.array(3), *operands)[1].shape == (3, 2)
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MORE, resource.RLIM_INFINITY))
try:
    module(np.array(1 << 62), *operands)
except fusion.errors.ExecutionError:
    print("refused")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("megabytes", [100, 170])
def test_it_ends_with_an_error(megabytes: int) -> None:
    script = SCRIPT.replace("MORE", str(megabytes << 20))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=300)
    assert done.stdout.strip() == "refused", done.stderr[-2000:]
