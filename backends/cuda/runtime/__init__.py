"""Runs code of CUDA devices through the driver's library, without any compiler, TVM's or NVIDIA's."""
