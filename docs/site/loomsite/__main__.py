"""Write the pages of the site and the settings of mkdocs into a folder: `python -m loomsite build`."""

from __future__ import annotations

import sys
from pathlib import Path

from loomsite.pages import write

if __name__ == "__main__":
    write(Path(sys.argv[1]))
