"""Converters, one file a family: each turns a node of an ONNX op into graph.

These are of what most models hold, and loaded with the first one; ``microsoft``, ``ml`` and
``uncommon`` beside this folder have the others, loaded when a model asks for them. Adding a family
is adding a file.
"""
