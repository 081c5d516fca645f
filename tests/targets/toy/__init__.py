"""A whole target in one folder: its code is the text of kernels, which NumPy evaluates."""
