"""Kernels for CUDA devices: PrimFuncs of blocks -> PrimFuncs whose loops are bound to blocks and threads."""
