"""Where a cluster is: `temporal://host:7233/namespace?task_queue=loom`.

An API key never stands in an address: the address names the environment variable that has it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from temporalio.service import TLSConfig

if TYPE_CHECKING:
    from urllib.parse import SplitResult

FORM = "temporal://host:7233/namespace?task_queue=loom"
API_KEY = "TEMPORAL_API_KEY"
"""The environment variable that is read if an address names no other."""

_PORT = 7233
_OPTIONS = ("task_queue", "tls", "tls_ca", "tls_cert", "tls_key", "tls_name", "api_key_env")
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class TemporalAddress(NamedTuple):
    """A namespace of a cluster, the task queue of the runs there, and how to connect."""

    target: str = f"localhost:{_PORT}"
    """Host and port, an IPv6 address in brackets."""
    namespace: str = "default"
    task_queue: str = "loom"
    tls: bool | None = None
    """None: use TLS if there is an API key, or a certificate."""
    tls_ca: str = ""
    """Files: the certificate of the authority that signed the server's, and this client's certificate with its key."""
    tls_cert: str = ""
    tls_key: str = ""
    tls_name: str = ""
    """The name that the server's certificate is for, if it is not the host's."""
    api_key_env: str = API_KEY

    @property
    def url(self) -> str:
        """Return the address as it can be shown: it has no secrets."""
        namespace = "" if self.namespace == "default" else f"/{self.namespace}"
        return f"temporal://{self.target}{namespace}?{urlencode({'task_queue': self.task_queue})}"

    def connection(self) -> dict[str, Any]:
        """Return what `Client.connect` takes beside the target. `ValueError` if a file cannot be read or a key is
        missing."""
        key = os.environ.get(self.api_key_env, "").strip() or None
        if key is None and self.api_key_env != API_KEY:
            raise ValueError(f"{self.url}: the environment variable {self.api_key_env} has no API key.")
        return {"namespace": self.namespace, "api_key": key, "tls": self._tls(key is not None)}

    def _tls(self, has_key: bool) -> bool | TLSConfig:
        if self.tls is False:
            return False
        if not (self.tls_ca or self.tls_cert or self.tls_name):
            return bool(self.tls) or has_key
        return TLSConfig(
            domain=self.tls_name or None,
            server_root_ca_cert=self._read(self.tls_ca),
            client_cert=self._read(self.tls_cert),
            client_private_key=self._read(self.tls_key),
        )

    def _read(self, path: str) -> bytes | None:
        if not path:
            return None
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise ValueError(f"{self.url}: {path} cannot be read: {error.strerror}.") from error


def parse_address(url: str) -> TemporalAddress:
    """Return the address that a URL names; raise a `ValueError` that shows the form if it names none."""
    parts = urlsplit(url)
    if parts.scheme != "temporal" or not url.startswith("temporal://"):
        raise ValueError(f"{url!r} is not the address of a Temporal cluster: use {FORM}.")
    if "@" in parts.netloc:
        raise ValueError(
            "The address of a Temporal cluster has no user and no password: "
            f"set {API_KEY}, or name another environment variable with ?api_key_env=NAME."
        )
    if parts.fragment:
        raise ValueError(f"The address of a Temporal cluster has no part behind #: use {FORM}.")
    return TemporalAddress(target=_target(parts), namespace=_namespace(parts), **_options(parts.query))


def _target(parts: SplitResult) -> str:
    try:
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{parts.netloc!r} is no host and port: {error}. Use {FORM}.") from error
    if not host:
        raise ValueError(f"The address of a Temporal cluster names its host: use {FORM}.")
    return f"[{host}]:{port or _PORT}" if ":" in host else f"{host}:{port or _PORT}"


def _namespace(parts: SplitResult) -> str:
    name = unquote(parts.path.strip("/"))
    if "/" in name:
        raise ValueError(f"{name!r} is more than one namespace: use {FORM}.")
    return name or "default"


def _options(query: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name == "api_key":
            raise ValueError(
                f"An API key does not belong into an address: set {API_KEY}, or name another environment variable "
                "with ?api_key_env=NAME."
            )
        if name not in _OPTIONS:
            raise ValueError(f"{name!r} is no option of a Temporal address: there are {', '.join(_OPTIONS)}.")
        if name in found:
            raise ValueError(f"The option {name!r} of a Temporal address is given twice.")
        if not value:
            raise ValueError(f"The option {name!r} of a Temporal address is empty.")
        found[name] = _switch(name, value) if name == "tls" else value
    if ("tls_cert" in found) != ("tls_key" in found):
        raise ValueError("tls_cert and tls_key go together: the certificate of this client, and its key.")
    return found


def _switch(name: str, value: str) -> bool:
    if value.lower() not in _WORDS:
        raise ValueError(f"{name}={value} in a Temporal address is neither true nor false.")
    return _WORDS[value.lower()]
