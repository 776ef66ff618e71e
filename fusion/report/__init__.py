"""What a compiled module says of itself: what it consists of, and how fast each part is."""
