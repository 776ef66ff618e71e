"""Rows times constant matrices: one matmul, or several that share their left operand, and what makes that."""
