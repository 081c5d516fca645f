"""The kernel layer: what to compute, as scalar expressions over an index space."""
