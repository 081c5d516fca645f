"""XLA's operations in terms of our ops, shared by the readers of jaxprs and of StableHLO.

Each function takes values of a graph and the operation's own parameters and builds the same meaning
out of ``monograph.functional``, one file a family. Where XLA differs from the rest of the world
(integers divided by zero, indices out of bounds, the order of NaN) the difference is written down
here, once. Nothing in this package imports JAX.
"""
