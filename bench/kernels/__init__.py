"""Every distinct operator shape of the zoo by itself, against the peers and against its own roofline.

`python -m bench.kernels` collects the shapes (`collect`), makes a model of each (`single`), times it (`measure`) and
writes a table and a plot (`report`).
"""
