"""Chooses the layout of every tensor: channels-last convolutions, and transposes that cost nothing."""

from fusion.passes.layout.assign_layouts import AssignLayouts, StoredIn

__all__ = ["AssignLayouts", "StoredIn"]
