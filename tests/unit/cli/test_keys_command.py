from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_rig import STORE, data, failure, good, loom

from loom.runtime.connect import connect
from loom.server.auth import Keys, Principal
from loom.store.errors import StoreUnavailable

pytestmark = pytest.mark.usefixtures("shop")


def opens(key: str, after: float = 0.0) -> Principal | None:
    """Whom a server takes the bearer of a key for, so many seconds from now."""
    import time

    async def found() -> Principal | None:
        async with connect(STORE) as runtime:
            return await Keys(runtime.store, now=lambda: time.time() + after).find(key)

    return asyncio.run(found())


def test_a_key_is_printed_once_and_never_stored(shop: Path) -> None:
    result = loom("keys", "create", "ops", "--scope", "read,start", "--scope", "event", "--workflow", "Order")
    key = result.stdout.strip()
    assert re.fullmatch(r"loom_[0-9a-f]{12}_[\w-]{43}", key)
    assert result.stderr == f"Key {key[5:17]} (ops) is good for read, start, event of Order. It is shown this once:\n"
    found = opens(key)
    assert found is not None
    assert (found.name, found.scopes, found.workflows) == ("ops", {"read", "start", "event"}, {"Order"})
    secret = key[18:].encode()
    for file in shop.glob("loom.db*"):
        assert secret not in file.read_bytes()
    assert key[18:] not in good("keys", "list") + good("keys", "list", "--json")


@pytest.mark.parametrize("step", ["loom.server.auth.Keys.add", "loom.runtime.durable.acts.record"])
def test_a_key_that_may_be_stored_though_nobody_has_it_is_named(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: Any) -> None:
        raise StoreUnavailable("The connection was lost.", outcome_unknown=True)

    monkeypatch.setattr(step, fails)
    message = failure(3, "keys", "create", "ops", "--scope", "read")
    assert re.match(r"The connection was lost\. .*`loom keys revoke [0-9a-f]{12}`", message)


def test_quiet_prints_the_key_alone() -> None:
    result = loom("keys", "create", "ops", "--scope", "admin", "--quiet")
    assert result.output == result.stdout
    assert opens(result.stdout.strip()) is not None


def test_a_revoked_key_opens_nothing() -> None:
    made = data("keys", "create", "ops", "--scope", "read")
    other = data("keys", "create", "app", "--scope", "start", "--expires", "90d")
    assert "ops) is revoked" in good("keys", "revoke", made["id"])
    again = data("keys", "revoke", made["id"])
    listed = data("keys", "list")
    assert listed == [again, {name: value for name, value in other.items() if name != "key"}]
    assert [key["status"] for key in listed] == ["revoked", "good"]
    assert opens(made["key"]) is None
    assert opens(other["key"]) is not None
    assert opens(other["key"], after=91 * 86400) is None
    assert re.search(rf"{other['id']} +app +start +all +\S+ ago +in 12w\b.* +good", good("keys", "list"))


def test_a_rotated_key_gives_way_to_the_new_one() -> None:
    old = data("keys", "create", "ops", "--scope", "read", "--workflow", "Order", "--expires", "10h")
    result = loom("keys", "rotate", old["id"], "--grace", "2h")
    new = result.stdout.strip()
    assert f"(ops) is in the place of {old['id']}, which is good for 2h yet." in result.stderr
    mine, yours = opens(old["key"]), opens(new)
    assert mine is not None
    assert yours is not None
    assert (mine.scopes, mine.workflows, mine.name) == (yours.scopes, yours.workflows, yours.name)
    assert opens(old["key"], after=2 * 3600 + 1) is None
    assert opens(new, after=9 * 3600) is not None
    assert opens(new, after=10 * 3600 + 1) is None
    # A key that ends before the grace does is not made to last.
    good("keys", "rotate", new[5:17], "--grace", "99h")
    assert opens(new, after=11 * 3600) is None
    good("keys", "rotate", old["id"], "--grace", "0")
    assert "make a new one" in failure(1, "keys", "rotate", old["id"])


def test_what_was_done_to_keys_is_in_the_record() -> None:
    from loom.server.audit import AUDIT

    async def record() -> list[dict[str, Any]]:
        async with connect(STORE) as runtime:
            return [json.loads(entry.data) for entry in await runtime.store.entries(AUDIT)]

    old = data("keys", "create", "ops", "--scope", "read")
    new = data("keys", "rotate", old["id"])
    good("keys", "revoke", old["id"])
    good("keys", "list")
    acts = [(act["actor"], act["action"], act["target"], act["made"]) for act in asyncio.run(record())]
    assert acts == [
        ("local", "key.revoke", old["id"], None),
        ("local", "key.rotate", old["id"], new["id"]),
        ("local", "key.create", old["id"], None),
    ]


@pytest.mark.parametrize("key_id", ["0123456789ab", "", "x" * 300, "../etc", "\x1b[2J"])
def test_ids_that_no_key_has(key_id: str) -> None:
    good("db", "upgrade")
    for command in ("revoke", "rotate"):
        message = failure(1, "keys", command, key_id)
        assert message.startswith("No key has the id ")
        assert "\x1b" not in message


def test_what_cannot_be_made() -> None:
    assert "'write' is no scope" in failure(2, "keys", "create", "ops", "--scope", "read,write")
    assert "Missing option '--scope'" in failure(2, "keys", "create", "ops")
    assert "has passed" in failure(2, "keys", "create", "ops", "--scope", "read", "--expires", "2001-01-01")
    assert "is not a time" in failure(2, "keys", "create", "ops", "--scope", "read", "--expires", "soon")
    assert "memory:// is gone" in failure(2, "keys", "create", "ops", "--scope", "read", "--store", "memory://")
    assert "There is no database" in failure(3, "keys", "list")
    good("db", "upgrade")
    assert good("keys", "list") == "No keys.\n"
    assert json.loads(good("keys", "list", "--json")) == []
