"""The rules, one file a subject; each file ends in ``RULES``, the tuple of what it holds."""
