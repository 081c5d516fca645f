"""Loop nests: how a processor computes a kernel, as loops, vectors and prefetches over flat memory.

The statements and their text, the nests of ops that state their own loops, and the proofs and
visits that verify nests. What makes a nest of a kernel and its schedule is in ``loops``.
"""
