"""Pushes what a node says of itself to its limits and past them: attributes, constants, operands and their shapes."""
