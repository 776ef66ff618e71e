"""Takes PyTorch programs: an ExportedProgram, or a module with example inputs. PyTorch is optional."""

from __future__ import annotations

from fusion.frontends.torch.model import TorchModel, accepts, import_torch, open_torch
from fusion.frontends.torch.program import program_files, weight_bytes

__all__ = ["TorchModel", "accepts", "import_torch", "open_torch", "program_files", "weight_bytes"]
