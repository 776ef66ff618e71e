"""Cuts a module of TensorIR calls into groups, each of which becomes one kernel."""
