"""CUDA modules on the device that is there: kernels against what the device can do and torch's, models of the zoo
against `torch.compile`.

`subjects` says what is run, `engines` runs one in a process of its own (`worker`), `measure` has rounds interleaved,
`result` is what was found and what it has to reach, `report` writes it, `sanitize` runs all kernels under
compute-sanitizer. Nothing of it has run on a device so far: none was at hand.
"""
