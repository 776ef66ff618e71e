"""Two products of batches with a softmax, other row-wise work or nothing between."""
