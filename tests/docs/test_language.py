"""The language of the pages: every word is on the list, none leaves the actor or the thing open, American spelling."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loomsite.language import is_known, prose, sentences, words
from loomsite.words import LIST, ROOT, checked_pages, known_words, unknown_words

PAGES = checked_pages()
RIDDLES = re.compile(
    r"\b(whoever|somebody|those of them|at hand|meanwhile|how-manieth|the same, but|stands for|so many)\b",
    re.IGNORECASE,
)
"""The words that docstrings avoid too (tests/tidy/test_language.py)."""
EARLIER = re.compile(r"adr/(?:README|00[0-7]\d)|^CHANGELOG")
"""Decisions and changes are not edited away; the ones from before these rules keep their words."""


def _id(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_every_word_is_on_the_list(page: Path) -> None:
    """A word that is right goes into docs/site/words.txt; `make words` adds what is missing, to be read in the diff."""
    assert list(unknown_words(page, known_words())) == []


def test_the_list_is_in_order_and_has_no_british_spelling() -> None:
    listed = [line for line in LIST.read_text("utf-8").splitlines() if not line.startswith("#")]
    assert listed == sorted(set(listed))
    british = {"behaviour", "colour", "favour", "honour", "labour", "centre", "catalogue", "cheque", "grey", "whilst"}
    assert british & set(listed) == set()
    like = re.compile(r"\w+(?:isation|ising|yse|ysed|ysing)")
    right = {"raising", "rising", "arising", "advising", "promising", "supervising", "surprising"}
    assert {word for word in listed if like.fullmatch(word)} - right == set()


@pytest.mark.parametrize("page", [page for page in PAGES if not EARLIER.search(_id(page))], ids=_id)
def test_pages_speak_plainly(page: Path) -> None:
    text = prose(page.read_text("utf-8"))
    odd = [f"{text.count(chr(10), 0, found.start()) + 1}: {found[0]}" for found in RIDDLES.finditer(text)]
    assert odd == []


def test_what_is_not_prose_is_not_read() -> None:
    page = "Runs `qwx` and [gone](qwy.md).\n\n```sh\nqwz\n```\n<!-- qwa --> See a/qwb.py, https://qwc.org; the LLMs.\n"
    assert [word.text for word in words(page)] == ["runs", "and", "gone", "see", "the"]
    assert [word.line for word in words(page)] == [1, 1, 1, 6, 6]


def test_regular_forms_of_a_word_are_known() -> None:
    known = frozenset({"commit", "store", "retry", "run"})
    assert all(is_known(word, known) for word in ("commits", "stores", "retries", "rerun"))
    assert not any(is_known(word, known) for word in ("comit", "commited", "stroe", "retrys", "runing"))


def test_a_misspelled_word_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loomsite.words.ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("# A page\n\nThe run is commited.\n")
    assert list(unknown_words(page, known_words())) == ["page.md:3: commited"]


def test_sentences_end_where_they_end() -> None:
    page = "# Title\n\nOne is here. Two is\nhere: and goes on.\n\n- Three.\n- Four\n\n| a | b |\n"
    assert [text.split()[0] for text, _ in sentences(page)] == ["One", "Two", "-", "-"]
