"""Reductions that read where no sector begins: blocks bring what they read into shared memory, as runs of memory."""
