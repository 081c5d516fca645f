"""The chips that kernels are compiled for: one folder a target."""
