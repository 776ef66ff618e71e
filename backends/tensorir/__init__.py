"""What any backend that writes TensorIR reads a kernel by and builds its loops with; it assumes no machine."""
