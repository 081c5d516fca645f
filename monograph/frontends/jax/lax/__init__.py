"""Converters of the primitives of ``jax.lax``, one file a family."""
