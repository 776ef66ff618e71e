"""cuBLASLt as an entry of the registry."""

from __future__ import annotations

from backends.cuda.libraries.package import PackagedLibrary

PACKAGE = "nvidia-cublas-cu12"
LIBRARY = PackagedLibrary((PACKAGE, "nvidia-cublas"))
