"""Models in float16, float64 and 8 bits, of which fusion has no kernels of its own that come near ONNX Runtime's."""
