"""What a compiled module is made of: programs, plans, forms, and files."""
