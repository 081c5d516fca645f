"""Converters of strings, sequences, image files, training and dropped ops: imported when needed."""
