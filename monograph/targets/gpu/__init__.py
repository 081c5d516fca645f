"""The GPU target: kernels as Triton source."""
