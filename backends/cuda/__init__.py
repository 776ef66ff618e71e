"""CUDA devices: what they can do, kernels for them, and their code. No run-time: nothing is started on a device yet."""
