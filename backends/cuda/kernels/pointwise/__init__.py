"""Elementwise regions of any size: each thread computes neighbours that one access of 16 bytes loads or stores."""
