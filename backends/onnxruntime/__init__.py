"""ONNX Runtime as the backend of last resort: it runs the parts of a model that no other backend takes."""
