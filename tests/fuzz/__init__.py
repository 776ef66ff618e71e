"""Generators of models, files and data that attack the compiler, each case in a process that it may crash."""
