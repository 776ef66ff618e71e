"""What writes each operator, a table for each family."""
