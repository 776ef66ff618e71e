"""Networks that nobody tuned for: they are measured to see how the compiler does on what it has not met.

`configurations` lists those of `transformers`, `networks` what the other files here write in plain PyTorch.
The project's tests and the search for kernel parameters leave this set alone.
"""
