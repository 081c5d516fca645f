"""Tests of the measurements themselves."""
