"""The code generator for CPUs: schedules TensorIR kernels by template."""
