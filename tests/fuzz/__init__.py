"""Generators of models, files and data that attack the compiler, each case in a process that it may crash."""

import os

import fusion

# Before TVM, which alone imports PyTorch: a process needs a third of the time to begin.
COMPILE = fusion.compile
# Nothing is taken from the cache, or a defect would show once only.
os.environ["FUSION_CACHE_SIZE"] = "0"
