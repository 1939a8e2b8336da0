"""The language of the pages: which words they use, and how long their sentences are.

A page is read as a reader sees it: without code, addresses and the names of files. What is left are sentences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MOST_WORDS = 40
"""A sentence of more words is told of."""

_FENCE = re.compile(r"^( *)(`{3,}|~{3,}).*?^\1\2`*$", re.MULTILINE | re.DOTALL)
_HIDDEN = re.compile(
    r"<!--.*?-->|</?[a-zA-Z][^>\n]*>|(?<!\\)(`+)(?!`)(?:(?!\n\n).)+?(?<!`)\1(?!`)|(?<=\])\([^)\s]*\)|\{ *[#.:][^}]*\}|\w+://\S+|&\w+;"
    r"|\b[\w./-]+\.(?:md|py|json|yaml|yml|txt|toml|svg|png|db|sql|css|js|sh)\b|::: .+|@[\w.]+",
    re.DOTALL,
)
_WORD = re.compile(r"(?<![\w\\/.-])[A-Za-z][a-z]*(?:'[a-z]+)?(?![\w\\/])")
_ENDINGS = (("ies", "y"), ("es", ""), ("s", ""), ("ly", ""))
"""Endings of regular forms, and what the plain word has in their place. Forms with -ed and -ing are words of their own:
whether they double a letter is what people get wrong."""
_BEFORE = ("un", "re", "non", "pre", "sub", "over", "under", "mis")


class Word(NamedTuple):
    """A word of a page, in lower case, and its line."""

    text: str
    line: int


def prose(page: str) -> str:
    """Blank out what is not prose; lines stay where they are."""
    return _HIDDEN.sub(_blank, _FENCE.sub(_blank, page))


def _blank(match: re.Match[str]) -> str:
    return "".join(character if character == "\n" else " " for character in match[0])


def words(page: str) -> Iterator[Word]:
    """Find the words of a page's prose. A word with capitals or digits inside is a name."""
    text = prose(page)
    for match in _WORD.finditer(text):
        word = match[0].lower()
        yield Word(word.removesuffix("'s").removesuffix("'"), text.count("\n", 0, match.start()) + 1)


def is_known(word: str, known: frozenset[str]) -> bool:
    """Say whether a word is on the list, or a regular form of one that is."""
    if len(word) == 1 or word in known or any(form in known for form in _plain_forms(word)):
        return True
    starts = (start for start in _BEFORE if word.startswith(start) and len(word) > len(start) + 2)
    return any(is_known(word.removeprefix(start), known) for start in starts)


def _plain_forms(word: str) -> Iterator[str]:
    for ending, instead in _ENDINGS:
        stem = word.removesuffix(ending)
        if stem != word and len(stem) > 1 and not (ending == "s" and re.search(r"[^aeiou]y$", stem)):
            yield stem + instead


def sentences(page: str) -> Iterator[tuple[str, int]]:
    """Find the sentences of a page, each with its line. Headings and tables have none."""
    text = prose(page)
    for block in re.finditer(r"(?:^(?![#|>]).+\n?)+", text, re.MULTILINE):
        start = 0
        for end in re.finditer(r"(?<=[.!?:])\s+(?=[A-Z*\[])|\n(?=\s*[-*\d])|\Z", block[0]):
            sentence = block[0][start : end.start()].strip()
            if sentence:
                yield sentence, text.count("\n", 0, block.start() + start) + 1
            start = end.end()
