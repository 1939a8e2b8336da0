"""The address of a Temporal cluster: what it says, what it leaves out, and how it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from temporalio.service import TLSConfig

from loom.temporal.address import TemporalAddress, parse_address


@pytest.fixture(autouse=True)
def _no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TEMPORAL_API_KEY", raising=False)


def test_a_full_address() -> None:
    address = parse_address("temporal://temporal.example.com:7777/orders?task_queue=billing&tls=true")
    assert address == TemporalAddress("temporal.example.com:7777", "orders", "billing", True)
    assert address.connection() == {"namespace": "orders", "api_key": None, "tls": True}


@pytest.mark.parametrize("url", ["temporal://localhost", "temporal://localhost/", "temporal://localhost:7233/default"])
def test_what_is_left_out_has_a_default(url: str) -> None:
    assert parse_address(url) == TemporalAddress("localhost:7233", "default", "loom", None)


@pytest.mark.parametrize(
    ("url", "target"), [("temporal://[::1]:7000/n", "[::1]:7000"), ("temporal://[fe80::2]", "[fe80::2]:7233")]
)
def test_ipv6_hosts_keep_their_brackets(url: str, target: str) -> None:
    assert parse_address(url).target == target


def test_names_may_be_quoted() -> None:
    address = parse_address("temporal://h/name%20space?task_queue=a%2Fb")
    assert (address.namespace, address.task_queue) == ("name space", "a/b")


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite:///x.db", "use temporal://host:7233/namespace"),
        ("temporal:host", "use temporal://host:7233/namespace"),
        ("temporal://", "names its host"),
        ("temporal:///namespace", "names its host"),
        ("temporal://h:port", "no host and port"),
        ("temporal://h/a/b", "more than one namespace"),
        ("temporal://h#x", "behind #"),
        ("temporal://h?queue=x", "there are task_queue, tls"),
        ("temporal://h?tls=maybe", "neither true nor false"),
        ("temporal://h?task_queue=", "is empty"),
        ("temporal://h?task_queue=a&task_queue=b", "given twice"),
        ("temporal://h?tls_cert=a.pem", "go together"),
    ],
)
def test_what_is_no_address_says_the_form(url: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_address(url)


@pytest.mark.parametrize("url", ["temporal://me:s3cret@host/n", "temporal://host/n?api_key=s3cret"])
def test_secrets_do_not_belong_into_an_address_and_are_not_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="TEMPORAL_API_KEY") as caught:
        parse_address(url)
    assert "s3cret" not in str(caught.value)


def test_an_api_key_comes_from_the_environment_and_brings_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEMPORAL_API_KEY", "s3cret")
    address = parse_address("temporal://host/n")
    assert address.connection() == {"namespace": "n", "api_key": "s3cret", "tls": True}
    assert parse_address("temporal://host/n?tls=false").connection()["tls"] is False
    assert "s3cret" not in f"{address!r} {address.url}"


def test_an_address_may_name_another_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    address = parse_address("temporal://host/n?api_key_env=CLUSTER_KEY")
    with pytest.raises(ValueError, match="CLUSTER_KEY has no API key"):
        address.connection()
    monkeypatch.setenv("CLUSTER_KEY", "s3cret")
    assert address.connection()["api_key"] == "s3cret"


def test_certificates_are_read_from_files(tmp_path: Path) -> None:
    for name in ("ca", "cert", "key"):
        (tmp_path / name).write_bytes(name.encode())
    files = f"tls_ca={tmp_path}/ca&tls_cert={tmp_path}/cert&tls_key={tmp_path}/key"
    tls = parse_address(f"temporal://host?{files}&tls_name=inner").connection()["tls"]
    assert tls == TLSConfig(server_root_ca_cert=b"ca", domain="inner", client_cert=b"cert", client_private_key=b"key")
    with pytest.raises(ValueError, match="gone cannot be read: No such file"):
        parse_address(f"temporal://host?tls_ca={tmp_path}/gone").connection()


def test_an_address_can_be_shown() -> None:
    assert parse_address("temporal://h:1/ns?task_queue=a%20b").url == "temporal://h:1/ns?task_queue=a+b"
    assert parse_address(TemporalAddress("h:1").url) == TemporalAddress("h:1")
