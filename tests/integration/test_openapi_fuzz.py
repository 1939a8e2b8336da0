"""Every operation of the OpenAPI document, asked over HTTP with what schemathesis makes of its schemas.

This is the short form; `python tests/integration/openapi_fuzz.py --examples 200` is the long one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from openapi_fuzz import Campaign, as_administrator, as_reader, as_stranger, without_keys
from openapi_fuzz_server import FuzzedServer, fuzzed_server


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FuzzedServer]:
    """A server that asks for keys."""
    with fuzzed_server(tmp_path_factory.mktemp("keyed")) as server:
        server.key("event")
        yield server


def test_without_keys_its_own_machine_gets_what_the_document_says(tmp_path_factory: pytest.TempPathFactory) -> None:
    with fuzzed_server(tmp_path_factory.mktemp("open")) as server:
        campaign = without_keys(server, 1)
    _is_clean(campaign)
    assert campaign.answers[200] > 0


def test_without_a_key_nobody_gets_in(keyed: FuzzedServer) -> None:
    campaign = as_stranger(keyed, 1)
    _is_clean(campaign)
    assert set(campaign.answers) == {401}


def test_with_a_wrong_key_nobody_gets_in(keyed: FuzzedServer) -> None:
    campaign = as_stranger(keyed, 1, keyed.key("admin")[:-4] + "0000")
    _is_clean(campaign)
    assert set(campaign.answers) <= {401, 429}


def test_a_key_that_may_read_changes_nothing(keyed: FuzzedServer) -> None:
    campaign = as_reader(keyed, 1, keyed.key("read"))
    _is_clean(campaign)
    assert set(campaign.answers) == {403}


def test_an_administrator_gets_what_the_document_says(keyed: FuzzedServer) -> None:
    campaign = as_administrator(keyed, 2, keyed.key("admin"))
    _is_clean(campaign)
    assert campaign.answers[200] > 0
    assert campaign.answers[400] > 0


def _is_clean(campaign: Campaign) -> None:
    assert not campaign.failures, "\n\n".join(campaign.failures)
