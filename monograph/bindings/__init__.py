"""Calling conventions: a program is called as its model was, from torch, ONNX, JAX or Python."""
