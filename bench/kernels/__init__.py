"""The zoo's operators that a kernel is built around, alone, against the peers and against their own roofline.

These are every matmul, convolution, normalisation, softmax, attention and pooling in float32 outside of branches, each
shape once; what branches compute (all of silero-vad) ONNX Runtime cannot show.

`python -m bench.kernels` collects the shapes (`collect`), makes a model of each (`single`), times it (`measure`) and
writes a table and a plot (`report`). With `--regions` it takes layer norm, GELU, softmax, masks and rotary embedding
instead, as exporters decompose them (`regions`).
"""
