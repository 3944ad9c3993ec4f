"""Sizes and strides: the layout rules of eager, free of tensors."""
