from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from loom.store.errors import BrokenJournal
from loom.store.hash_chain import Links, check_whole, first_link
from loom.store.keyring import Keyring
from loom.store.records import Chunk, RunHead, RunRow, Snapshot, StoredRun

KEY, OTHER = b"k" * 32, b"o" * 32
SIGNING = Links(Keyring({"k1": KEY}))


def journal(links: Links, run_id: str = "r", chunks: int = 5) -> StoredRun:
    """A run of chunks with two ticks and one event each, and a snapshot."""
    plain = [Chunk(2 * number, 2, number, 1, b"chunk %d" % number) for number in range(chunks)]
    chained, link = links.chained(run_id, plain)
    head = RunHead("running", 2 * chunks, chunks, 1.0, link=link)
    snapshot = Snapshot(4, b"state", links.seal(run_id, 4, b"state"))
    return StoredRun(RunRow(run_id, "w", 1.0, head), b"", snapshot, chained)


def with_chunk(run: StoredRun, number: int, **changes: object) -> StoredRun:
    chunks = list(run.chunks)
    chunks[number] = replace(chunks[number], **changes)
    return replace(run, chunks=tuple(chunks))


def with_link(run: StoredRun, link: bytes | None) -> StoredRun:
    return replace(run, row=replace(run.row, head=replace(run.row.head, link=link)))


def without(run: StoredRun, number: int) -> StoredRun:
    return replace(run, chunks=run.chunks[:number] + run.chunks[number + 1 :])


def swapped(run: StoredRun) -> StoredRun:
    """Two chunks have changed their contents."""
    first, second = run.chunks[1].data, run.chunks[2].data
    return with_chunk(with_chunk(run, 1, data=second), 2, data=first)


@pytest.mark.parametrize("links", [Links(), SIGNING], ids=["plain", "signed"])
def test_what_was_written_holds_as_a_whole_and_behind_a_snapshot(links: Links) -> None:
    run = journal(links)
    check_whole(run)
    checked = links.check(run)
    assert (checked.chunks, checked.unchained, checked.unknown) == (5, 0, 0)
    assert checked.is_signed == (links is SIGNING)
    behind = replace(run, chunks=run.chunks[2:])
    assert links.check(behind).chunks == 3
    assert links.check(replace(run, chunks=())).chunks == 0


CHANGES: dict[str, tuple[Callable[[StoredRun], StoredRun], str]] = {
    "a changed chunk": (lambda run: with_chunk(run, 3, data=b"other"), "2 ticks from tick 6"),
    "the last chunk": (lambda run: with_chunk(run, 4, data=b"other"), "2 ticks from tick 8"),
    "a count of ticks": (lambda run: with_chunk(run, 1, ticks=1), "1 ticks from tick 2"),
    "a cursor": (lambda run: with_chunk(run, 1, first_cursor=7), "2 ticks from tick 2"),
    "a removed chunk": (lambda run: without(run, 2), "2 ticks from tick 2"),
    "the first chunk removed": (lambda run: with_chunk(without(run, 0), 0, first_tick=0), "2 ticks from tick 0"),
    "the last chunk removed": (lambda run: without(run, 4), "2 ticks from tick 6"),
    "swapped chunks": (swapped, "2 ticks from tick 2"),
    "a link taken away": (lambda run: with_chunk(run, 2, previous=None), "2 ticks from tick 2"),
    "the first link taken away": (lambda run: with_chunk(run, 0, previous=None), "2 ticks from tick 0"),
    "no link in the row": (lambda run: with_link(run, None), "2 ticks from tick 8"),
    "another link in the row": (lambda run: with_link(run, first_link("r")), "2 ticks from tick 8"),
    "the journal of another run": (
        lambda run: replace(run, row=replace(run.row, run_id="x"), snapshot=None),
        "2 ticks from tick 0",
    ),
    "a changed snapshot": (
        lambda run: replace(run, snapshot=replace(run.snapshot, data=b"other")),
        "the snapshot after 4 ticks",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("links", [Links(), SIGNING], ids=["plain", "signed"])
def test_what_was_changed_is_found_and_the_place_is_named(links: Links, change: str) -> None:
    harm, place = CHANGES[change]
    with pytest.raises(BrokenJournal, match=place):
        links.check(harm(journal(links)))


@pytest.mark.parametrize(
    "harm",
    [lambda run: without(run, 0), lambda run: without(run, 2), lambda run: without(run, 4)],
    ids=["first", "middle", "last"],
)
def test_missing_ticks_are_found_without_links(harm: Callable[[StoredRun], StoredRun]) -> None:
    with pytest.raises(BrokenJournal, match=r"tick \d was to come|its row counts 10 and 5"):
        check_whole(harm(journal(Links())))


def test_a_pruned_journal_begins_where_it_was_cut() -> None:
    run = journal(SIGNING)
    pruned = replace(run, row=replace(run.row, first_tick=4), chunks=run.chunks[2:])
    check_whole(pruned)
    assert SIGNING.check(pruned).is_signed
    with pytest.raises(BrokenJournal, match="from tick 4"):
        SIGNING.check(with_chunk(pruned, 0, data=b"other"))


@pytest.mark.parametrize("cut", [2, 5], ids=["front", "all"])
def test_ticks_that_no_snapshot_has_were_not_pruned(cut: int) -> None:
    run = journal(SIGNING)
    row = replace(run.row, first_tick=2 * cut)
    with pytest.raises(BrokenJournal, match=f"its first {2 * cut} ticks are missing"):
        check_whole(replace(run, row=row, chunks=run.chunks[cut:], snapshot=None))


def test_what_was_written_before_there_were_links_is_unchained_and_what_follows_is_bound() -> None:
    run = journal(Links())
    old = with_link(replace(run, chunks=tuple(replace(chunk, previous=None) for chunk in run.chunks)), None)
    assert Links().check(replace(old, snapshot=replace(run.snapshot, link=None))).unchained == 5
    begun = Chunk(10, 1, 5, 0, b"new", first_link("r"))
    went_on = with_link(replace(old, chunks=(*old.chunks, begun)), Links().link(first_link("r"), begun))
    assert Links().check(went_on)[:2] == (6, 5)
    with pytest.raises(BrokenJournal, match="1 ticks from tick 10"):
        Links().check(with_chunk(went_on, 5, data=b"other"))


def test_who_lacks_the_key_cannot_make_a_chain() -> None:
    forged = journal(Links(Keyring({"k1": OTHER})))
    with pytest.raises(BrokenJournal, match="is another one"):
        SIGNING.check(forged)
    with pytest.raises(BrokenJournal, match="not signed"):
        SIGNING.check(journal(Links()))
    with pytest.raises(BrokenJournal, match="not signed"):
        SIGNING.check(replace(journal(Links()), snapshot=None))
    stripped = with_link(journal(SIGNING), None)
    with pytest.raises(BrokenJournal):
        SIGNING.check(replace(stripped, chunks=tuple(replace(chunk, previous=None) for chunk in stripped.chunks)))


def test_keys_follow_each_other_and_the_word_lets_older_journals_pass() -> None:
    run = journal(SIGNING)
    later = Links(Keyring({"k2": OTHER, "k1": KEY}))
    assert later.check(run).is_signed
    chunk = Chunk(10, 1, 5, 0, b"more", run.row.head.link)
    went_on = with_link(replace(run, chunks=(*run.chunks, chunk)), later.link(chunk.previous or b"", chunk))
    assert later.check(went_on).is_signed
    assert (went_on.row.head.link or b"").startswith(b"k2:")
    with pytest.raises(BrokenJournal, match="signed with the key 'k2', and at hand is 'k1'"):
        SIGNING.check(went_on)
    lenient = Links(Keyring({"k1": KEY}, lenient=True))
    assert lenient.check(journal(Links())).unsigned == 5


def test_without_any_key_signatures_are_left_alone_but_ticks_must_be_there() -> None:
    assert Links().check(journal(SIGNING)).unknown == 5
