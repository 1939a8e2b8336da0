"""Which addresses an http action may reach. By default only public ones: a flow is data and may come from anybody.

The decision is made about the address that will be connected to, never about a name. Addresses that carry another one
inside (IPv4-mapped, NAT64, 6to4, Teredo) are judged by what they carry.
"""

from __future__ import annotations

import os
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING

from msgspec import Struct

from loom.effects.off_loop import MAX_VALUES

if TYPE_CHECKING:
    from collections.abc import Sequence

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

ENVIRONMENT_VARIABLE = "LOOM_HTTP_ALLOW"
MAX_RESPONSE_BYTES = 16 * 1024 * 1024
STORED_SHARE = 4
"""A response may have a quarter of the bytes of a run's state: an envelope with parts takes three times its bytes."""

_METADATA = frozenset(
    map(ip_address, ("169.254.169.254", "169.254.170.2", "168.63.129.16", "100.100.100.200", "fd00:ec2::254"))
)
"""Where clouds hand out credentials; two of them look like ordinary addresses."""

_UNICAST = ip_network("2000::/3")
_SPECIAL = tuple(
    map(ip_network, (
        "0.0.0.0/8", "100.64.0.0/10", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15",
        "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4", "2001::/23", "2001:db8::/32", "3fff::/20",
    ))
)  # fmt: skip
"""Set aside for special use, whatever the version of the standard library knows about it."""

_NAT64 = ip_network("64:ff9b::/96")
_COMPATIBLE = ip_network("::/96")


class HostRefused(Exception):
    """An address that the policy does not allow. The message says how to allow it."""


class HttpPolicy(Struct, frozen=True):
    """The addresses that http actions may reach beside public ones, and how much they may bring back.

    `allow_hosts` are names, `name:port`, or `*.domain`; whatever address such a name has is allowed. `allow_networks`
    are addresses or networks in CIDR form. `allow_all` switches the guard off.
    """

    allow_hosts: frozenset[str] = frozenset()
    allow_networks: tuple[Network, ...] = ()
    allow_all: bool = False
    max_response_bytes: int = MAX_RESPONSE_BYTES
    """Of a response, before and after its decompression."""
    max_response_values: int = MAX_VALUES
    """How many values a response may decode to."""
    request_timeout_s: float = 120.0
    """How long a server may stay silent."""
    max_redirects: int = 10

    @classmethod
    def allowing(cls, *entries: str) -> HttpPolicy:
        """A policy from entries as the environment variable has them: hosts, host:port, networks, or `*`."""
        hosts: set[str] = set()
        networks: list[Network] = []
        for entry in filter(None, map(_without_scheme, entries)):
            network = _network(entry)
            if network is not None:
                networks.append(network)
            elif entry != "*":
                hosts.add(_normal(entry))
        return cls(frozenset(hosts), tuple(networks), allow_all="*" in [entry.strip() for entry in entries])

    @classmethod
    def from_environment(cls) -> HttpPolicy:
        """The policy that the operator has set, which denies by default."""
        return cls.allowing(*os.environ.get(ENVIRONMENT_VARIABLE, "").split(","))

    def allows_host(self, host: str, port: int) -> bool:
        """Say whether a name is allowed, whatever its address."""
        name = _normal(host)
        if self.allow_all or name in self.allow_hosts or f"{name}:{port}" in self.allow_hosts:
            return True
        parents = name.split(".")[1:]
        return any("*." + ".".join(parents[start:]) in self.allow_hosts for start in range(len(parents)))

    def objection(self, address: Address) -> str:
        """Say what speaks against an address; empty if nothing does."""
        forms = (address, *carried(address))
        if any(form in network for form in forms for network in self.allow_networks if form.version == network.version):
            return ""
        return why_refused(address)

    def permitted(self, host: str, port: int, addresses: Sequence[str]) -> list[str]:
        """Choose the addresses of a host that may be connected to; `HostRefused` if there is none."""
        if self.allows_host(host, port):
            return list(addresses)
        objections = {text: self.objection(ip_address(text)) for text in addresses}
        found = [text for text in addresses if not objections[text]]
        if found:
            return found
        text, reason = next(iter(objections.items()))
        shown, entry = f"{host} ({text})" if host != text else host, _entry(host, port)
        raise HostRefused(
            f"Requests to {shown} are refused: it is {reason}. To allow it, add '{entry}' to "
            f"{ENVIRONMENT_VARIABLE}, or give loom.connect() http_allow=['{entry}'] or a command --allow-host {entry}."
        )


def why_refused(address: Address) -> str:
    """Name the kind of an address that no request may reach without leave; empty for a public one."""
    inner = carried(address)
    if inner:
        reasons = [(form, why_refused(form)) for form in inner]
        return next((f"{form} in disguise, {reason}" for form, reason in reasons if reason), "")
    if address in _METADATA:
        return "a metadata service"
    kinds = (
        ("unspecified", address.is_unspecified),
        ("a loopback address", address.is_loopback),
        ("a link-local address", address.is_link_local),
        ("a multicast address", address.is_multicast),
        ("a private address", address.is_private or (isinstance(address, IPv6Address) and address.is_site_local)),
        ("a reserved address", not address.is_global or _is_special(address)),
    )
    return next((kind for kind, applies in kinds if applies), "")


def _is_special(address: Address) -> bool:
    if isinstance(address, IPv6Address) and address not in _UNICAST:
        return True
    return any(address in network for network in _SPECIAL if network.version == address.version)


def carried(address: Address) -> tuple[Address, ...]:
    """The addresses that an IPv6 address carries inside."""
    if isinstance(address, IPv4Address):
        return ()
    if address.ipv4_mapped is not None:
        return (address.ipv4_mapped,)
    if address.sixtofour is not None:
        return (address.sixtofour,)
    if address.teredo is not None:
        return address.teredo
    low = IPv4Address(int(address) & 0xFFFFFFFF)
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        return (low,)
    return ()


def _network(entry: str) -> Network | None:
    try:
        return ip_network(entry.removeprefix("[").removesuffix("]"), strict=False)
    except ValueError:
        return None


def _without_scheme(entry: str) -> str:
    """The host, with its port if it has one, of an entry that may be a whole address: `http://localhost:8080/`."""
    _, found, rest = entry.strip().partition("://")
    return rest.partition("/")[0] if found else entry.strip()


def _normal(host: str) -> str:
    return host.lower().replace("[", "").replace("]", "").rstrip(".")


def _entry(host: str, port: int) -> str:
    return _normal(host) if ":" in host else f"{_normal(host)}:{port}"
