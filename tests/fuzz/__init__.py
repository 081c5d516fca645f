"""A fuzzer of torch programs: draw, compile, compare with float64, shrink what differs.

``python -m tests.fuzz --programs 300 --seed 7`` draws 300 programs and prints a table of what was
found. One file an idea: ``values`` makes inputs, ``programs`` is a program as a value that prints
as Python, ``scope`` and the vocabulary (``pointwise``, ``views``, ``reductions``, ``indexing``,
``layers``) draw them, ``routes`` compiles and runs, ``oracle`` compares, ``check`` judges one
program, ``workers`` does so in child processes, ``shrink`` makes findings small, ``report`` counts.
"""
