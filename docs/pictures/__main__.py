"""Draw every picture anew, or those that are named: ``python -m docs.pictures 6-fusion``."""

from __future__ import annotations

import sys
from pathlib import Path

from docs.pictures.drawings import PICTURES

FOLDER = Path(__file__).parent

if __name__ == "__main__":
    for name in sys.argv[1:] or PICTURES:
        (FOLDER / f"{name}.svg").write_text(PICTURES[name](), encoding="utf-8")
        print(FOLDER / f"{name}.svg")
