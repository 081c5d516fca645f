"""Attention as one streaming kernel: tiles of many queries, or keys split among threads."""
