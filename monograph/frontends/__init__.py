"""Ways into the graph: Python functions on values, and models of other frameworks."""
