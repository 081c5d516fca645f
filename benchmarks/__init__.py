"""Measurements; every claim about speed comes from here."""
