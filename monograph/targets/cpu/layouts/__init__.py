"""How values lie in memory: which layout each has, and the copies between them."""
