"""Passes: graph in, better graph out. One file a pass; ``pipeline`` orders them."""
