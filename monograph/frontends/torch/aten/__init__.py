"""Converters of ATen ops, one file a family; ``registry`` loads every file here by itself."""
