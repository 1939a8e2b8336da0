from __future__ import annotations

import base64

import pytest

from loom.store.errors import WrongKeys
from loom.store.keyring import Keyring, check_key_markers, key_markers, parse_keys
from loom.store.memory import MemoryStore

ONE, TWO = b"1" * 32, b"\xff" * 32


def text(key: bytes) -> str:
    return base64.b64encode(key).decode()


def parsed(given: str) -> Keyring:
    return parse_keys(given, what="KEYS", lenient="plain")


def test_the_first_key_writes_and_its_values_are_not_shown() -> None:
    ring = parsed(f" k2:{text(TWO)} , k1:{text(ONE)},plain, k0:gone")
    assert (ring.first, ring.keys, ring.lenient, ring.gone) == ("k2", {"k2": TWO, "k1": ONE}, True, {"k0"})
    assert repr(ring) == "Keyring(k2, k1)"
    assert parsed(f"k:{base64.urlsafe_b64encode(TWO).decode()}").keys == {"k": TWO}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("", "KEYS has no key"),
        ("plain", "KEYS has no key"),
        ("k1:gone", "KEYS has no key"),
        (text(ONE), "item 1 is neither"),
        (f"k 1:{text(ONE)}", "item 1 is neither"),
        ("k1:c2hvcnQ=", "the key 'k1' must be 32 bytes"),
        ("k1:%%%", "the key 'k1' must be 32 bytes"),
        (f"k1:{text(ONE)},k1:{text(TWO)}", "the key 'k1' is there twice"),
    ],
)
def test_what_is_no_keyring_is_refused_without_showing_it(given: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        parsed(given)
    assert text(ONE) not in str(refused.value)
    assert "c2hvcnQ" not in str(refused.value)


async def test_marks_tell_which_keys_a_store_needs() -> None:
    store = MemoryStore()
    await store.open()
    ring = Keyring({"k1": ONE})
    await check_key_markers(store, "journal", None, "KEYS")
    await check_key_markers(store, "journal", ring, "KEYS")
    await check_key_markers(store, "journal", ring, "KEYS")
    assert list(await key_markers(store, "journal")) == ["k1"]
    assert await key_markers(store, "encryption") == {}
    with pytest.raises(WrongKeys, match=r"uses the journal key .k1., and at hand is no key\. Add it to KEYS"):
        await check_key_markers(store, "journal", None, "KEYS")
    with pytest.raises(WrongKeys, match="key 'k1' in KEYS is not the one"):
        await check_key_markers(store, "journal", Keyring({"k1": TWO}), "KEYS")
    with pytest.raises(WrongKeys, match="at hand is 'k2'"):
        await check_key_markers(store, "journal", Keyring({"k2": TWO}), "KEYS")
    await check_key_markers(store, "journal", Keyring({"k2": TWO, "k1": ONE}), "KEYS")
    assert list(await key_markers(store, "journal")) == ["k1", "k2"]
    await check_key_markers(store, "journal", Keyring({"k2": TWO}, gone=frozenset({"k1"})), "KEYS")
    assert list(await key_markers(store, "journal")) == ["k2"]
    await store.close()
