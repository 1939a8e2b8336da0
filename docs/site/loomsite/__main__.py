"""Make what mkdocs reads, finish what it has written, and look after the language of the pages.

- `python -m loomsite pages build` writes the pages of the site and the settings of mkdocs for them, and counts the
  sentences that are too long.
- `python -m loomsite search build` puts Loom's handling of questions before the search worker of the site.
- `python -m loomsite words` adds the words that are missing to the list. Read the diff: a misspelled word is one too.
- `python -m loomsite sentences` lists long sentences.
"""

from __future__ import annotations

import sys
from pathlib import Path


def _pages(build: str) -> None:
    from loomsite.language import MOST_WORDS
    from loomsite.pages import write
    from loomsite.words import long_sentences

    write(Path(build))
    long = len(list(long_sentences()))
    print(f"Warning: {long} sentences have more than {MOST_WORDS} words; `make sentences` lists them.", file=sys.stderr)


def _search(build: str) -> None:
    (worker,) = (Path(build) / "site" / "assets" / "javascripts" / "workers").glob("search.*.min.js")
    prelude = Path(__file__).parents[1] / "search.js"
    worker.write_text(prelude.read_text("utf-8") + worker.read_text("utf-8"), "utf-8")


def _words() -> None:
    from loomsite.words import LIST, checked_pages, known_words, unknown_words

    known = known_words()
    missing = {line.rpartition(" ")[2] for page in checked_pages() for line in unknown_words(page, known)}
    remarks = [line for line in LIST.read_text("utf-8").splitlines() if line.startswith("#")]
    LIST.write_text("\n".join([*remarks, *sorted(known | missing)]) + "\n", "utf-8")
    print(f"{len(missing)} words were added: {', '.join(sorted(missing))}" if missing else "No word is missing.")


def _sentences() -> None:
    from loomsite.words import long_sentences

    print("\n".join(long_sentences()))


if __name__ == "__main__":
    {"pages": _pages, "search": _search, "words": _words, "sentences": _sentences}[sys.argv[1]](*sys.argv[2:])
