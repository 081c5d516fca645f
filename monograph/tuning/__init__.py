"""Searching for better choices by measuring them on this machine."""
