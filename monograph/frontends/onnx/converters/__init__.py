"""Converters, one file a family: each turns a node of an ONNX op into graph.

Every module here is imported by ``registry.converters``; adding a family is adding a file.
"""
