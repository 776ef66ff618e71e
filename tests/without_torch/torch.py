"""In the place of PyTorch, of which processes that import TVM alone have no use: it takes 4 s of CPU time."""

raise ModuleNotFoundError("PyTorch is not needed here", name="torch")
