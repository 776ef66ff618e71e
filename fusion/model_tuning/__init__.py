"""`fusion.tune`: tunes the kernels of one or more models in one job.

`networks` lowers a model to its kernels, `run` and `served_run` tune those of all, here or on servers, and `tuning` is
the state and result.
"""
