"""Plans: how each group of nodes is computed, decided before any code is emitted."""
