"""Memory-bound stages stitched into tiles: a family of its own, and what a matmul or an attention does to its rows."""
