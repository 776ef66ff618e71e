"""What several families are made of; it imports none of them.

The files here are the micro-kernel and its loops: sizes, how they are cut into tasks and register tiles, arithmetic,
epilogues, windows. `lowering/` is what lowerings ask and pack, `convolution/` the ways to convolve, `chains/` what
kernels of several anchors share, `stitching/` memory-bound stages in tiles.
"""
