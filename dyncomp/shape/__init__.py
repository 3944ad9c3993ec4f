"""Sizes: layout rules free of tensors, and symbolic numbers with what is known about them."""
