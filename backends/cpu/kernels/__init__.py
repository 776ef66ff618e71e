"""The kernels of a CPU, a folder for each family: how its operators are lowered, read, planned and written as loops."""
