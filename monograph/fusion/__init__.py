"""Fusion: which nodes share a kernel, decided by the bytes that it saves."""
