"""Libraries of NVIDIA's that run kernels in the place of ours, where they are installed and named.

Here is what all of them share, and a folder for each: what it computes as plain data, which kernels are one call of
it (`read.py`, `template.py`), its C API (`api.py`), and a call on a device (`loaded.py`).
"""
