"""A program as data, the same for every target: slots, steps, liveness, the arena."""
