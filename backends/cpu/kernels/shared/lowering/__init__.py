"""What lowerings are made of: questions about operands, packed weights, calls of several families."""
