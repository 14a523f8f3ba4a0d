"""PyTorch's side of the look-alike of WholeMemory."""
