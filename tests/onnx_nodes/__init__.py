"""ONNX's own node tests as a suite: every test has a recorded outcome, and outcomes only improve."""

import os

# As in tests/conftest.py.
os.environ["FUSION_CACHE_SIZE"] = "0"
