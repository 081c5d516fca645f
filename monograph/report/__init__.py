"""The report: one HTML page of everything that compiling a model did, and the same page live.

``history`` keeps the graph at every pass, ``program_facts`` says what runs and where it lies in
memory, ``data`` puts both together as plain JSON, and ``page`` writes them into one file beside the
script that draws them (``page/`` holds its sources, ``assets/`` what is built of them). ``server``
serves that page on loopback and compiles what is edited there. ``svg`` draws one graph for a
notebook.
"""
