"""The pictures of the book: each is drawn by code, from what the compiler makes of ``digits``.

    make pictures      # draws them anew; the tests compare them with what is committed

``canvas`` writes SVG, ``layers`` lays out graphs, and one function a chapter draws (``PICTURES``).
All is computed for a described processor, so that every machine draws the same.
"""
