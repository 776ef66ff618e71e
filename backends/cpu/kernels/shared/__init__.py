"""What several families are made of: the micro-kernel, the loops around it, windows, and what is behind an anchor."""
