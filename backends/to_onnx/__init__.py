"""Writes Relax functions as ONNX models, for libraries that run such models and for people."""
