"""Matrix products: tiles for the registers, blocks for the caches, packed operands."""
