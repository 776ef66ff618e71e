"""`fusion.tune`: models as networks of one job, which measures points of their kernels for as long as it may.

`networks` lowers a model as far as its kernels, `run` tunes those of all, `tuning` is what comes of it.
"""
