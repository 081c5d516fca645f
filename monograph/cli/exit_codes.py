"""What the command line exits with.

====  ==========================================================================================
0     done; what was asked about is fine
1     an error that says what is wrong with what was given
2     a command or an option that does not exist
3     a finding: an answer is wrong (``validate``, ``compare``), a fault was found (``bisect``), or
      something does not work (``doctor``)
70    a fault of Monograph's own: an error that nobody foresaw
130   interrupted
141   whoever read the output went away
====  ==========================================================================================
"""

from __future__ import annotations

ERROR = 1
FINDING = 3
INTERNAL = 70
INTERRUPTED = 130
BROKEN_PIPE = 141
