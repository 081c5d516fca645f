"""Gradients, as graph to graph."""
