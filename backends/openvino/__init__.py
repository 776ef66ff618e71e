"""Runs regions of a graph on OpenVINO."""
