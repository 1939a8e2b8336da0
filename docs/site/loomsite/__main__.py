"""Make what mkdocs reads, and finish what it has written.

`python -m loomsite pages build` writes the pages of the site and the settings of mkdocs for them. `python -m loomsite
search build` puts Loom's handling of questions before the search worker of the site.
"""

from __future__ import annotations

import sys
from pathlib import Path

from loomsite.pages import SITE, write


def _search(build: Path) -> None:
    (worker,) = (build / "site" / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    worker.write_text((SITE / "search.js").read_text("utf-8") + worker.read_text("utf-8"), "utf-8")


if __name__ == "__main__":
    {"pages": write, "search": _search}[sys.argv[1]](Path(sys.argv[2]))
