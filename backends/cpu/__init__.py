"""The CPU backend: schedules TensorIR kernels by templates, and compiles them through LLVM."""
