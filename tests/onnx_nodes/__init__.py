"""ONNX's own node tests as a suite: every test has a recorded outcome, and outcomes only improve."""
