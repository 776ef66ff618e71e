"""Takes PyTorch programs: an ExportedProgram, or a module with example inputs. PyTorch is optional."""

from __future__ import annotations

from fusion.frontends.torch.model import TorchModel, accepts, import_torch, open_torch

__all__ = ["TorchModel", "accepts", "import_torch", "open_torch"]
