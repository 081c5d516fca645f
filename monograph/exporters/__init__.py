"""Graphs in the formats of others."""
