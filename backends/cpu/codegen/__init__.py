"""From kernels with loops to a CPU's machine code."""
