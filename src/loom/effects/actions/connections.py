"""Connectors as authors register them: a document, an address, credentials. Nothing here reads or sends anything.

Secrets are named, not held: a `Secret` says which environment variable or file has it, and it is read when a request
goes out. So no repr, log or traceback of a registration can show one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct
from msgspec.structs import force_setattr
from typing_extensions import override

_MAX_SECRET_BYTES = 64 * 1024


class SecretUnavailable(Exception):
    """Raised for a secret that cannot be read. The message names its place, never the secret."""


class Secret(Struct, frozen=True, repr_omit_defaults=True):
    """A secret and the place that it comes from. It is read for each request, so that it can be exchanged."""

    place: Literal["env", "file", "value"]
    source: str
    """Name of the variable, path of the file, or the secret itself."""

    @classmethod
    def env(cls, name: str) -> Secret:
        """Name a secret in an environment variable."""
        return cls("env", name)

    @classmethod
    def file(cls, path: str | os.PathLike[str]) -> Secret:
        """Name a secret in a file, without the line end at its end."""
        return cls("file", os.path.abspath(os.fspath(path)))

    def read(self) -> str:
        """Read the secret. Raises `SecretUnavailable`."""
        if self.place == "value":
            return self.source
        if self.place == "env":
            found = os.environ.get(self.source, "")
            if not found:
                raise SecretUnavailable(f"The environment variable {self.source} has no secret.")
            return found
        try:
            with Path(self.source).open("rb") as file:
                data = file.read(_MAX_SECRET_BYTES + 1)
            text = data.decode().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise SecretUnavailable(f"The secret in {self.source} cannot be read: {type(error).__name__}.") from None
        if not text or len(data) > _MAX_SECRET_BYTES:
            raise SecretUnavailable(f"{self.source} has no secret, or too much to be one.")
        return text

    @override
    def __repr__(self) -> str:
        return "Secret(***)" if self.place == "value" else f"Secret.{self.place}({self.source!r})"


SecretText: TypeAlias = Secret | str
"""A named secret. A text is taken for the secret itself, and is never shown either."""


def secret_of(given: SecretText, what: str) -> Secret:
    """Wrap a text, so that nothing shows it."""
    if isinstance(given, Secret):
        return given
    if not given or not isinstance(given, str):
        raise TypeError(f"{what} must be a text with something in it or a loom.Secret, not {type(given).__name__}.")
    return Secret("value", given)


class _Auth(Struct, frozen=True, kw_only=True):
    """Wraps the secrets among its fields."""

    def __post_init__(self) -> None:
        for name in self._secrets():
            wrapped = secret_of(getattr(self, name), name)
            force_setattr(self, name, wrapped)

    @classmethod
    def _secrets(cls) -> tuple[str, ...]:
        return ()

    def secret(self, name: str) -> str:
        """Read one of its secrets. Raises `SecretUnavailable`."""
        found = getattr(self, name)
        assert isinstance(found, Secret)
        return found.read()


class ApiKey(_Auth, frozen=True, kw_only=True):
    """A key in a header or in the query of each request."""

    key: SecretText
    name: str = "X-API-Key"
    """Name of the header or of the query parameter."""
    place: Literal["header", "query"] = "header"

    @override
    @classmethod
    def _secrets(cls) -> tuple[str, ...]:
        return ("key",)


class BasicAuth(_Auth, frozen=True, kw_only=True):
    """A user and a password."""

    username: str
    password: SecretText

    @override
    @classmethod
    def _secrets(cls) -> tuple[str, ...]:
        return ("password",)


class BearerToken(_Auth, frozen=True, kw_only=True):
    """A token that is valid as it is."""

    token: SecretText

    @override
    @classmethod
    def _secrets(cls) -> tuple[str, ...]:
        return ("token",)


class ClientCredentials(_Auth, frozen=True, kw_only=True):
    """OAuth2 client credentials: a token is fetched, kept while it is valid, and fetched anew when it is refused."""

    token_url: str
    client_id: str
    client_secret: SecretText
    scope: str = ""
    audience: str = ""
    """Resource that the token is for, where the authority asks for one."""
    style: Literal["body", "basic"] = "body"
    """How the client shows itself: fields of the form, or Basic."""

    @override
    def __post_init__(self) -> None:
        super().__post_init__()
        check_address(self.token_url, "token_url", "https://login.example.com/oauth2/token")

    @override
    @classmethod
    def _secrets(cls) -> tuple[str, ...]:
        return ("client_secret",)


Authentication: TypeAlias = ApiKey | BasicAuth | BearerToken | ClientCredentials


def check_address(address: str, what: str, example: str) -> None:
    """Refuse what is no address of a service. Raises `ValueError`."""
    try:
        parts = urlsplit(address)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        good = good and not parts.query and not parts.fragment and "@" not in parts.netloc
    except ValueError:
        good = False
    if not good:
        # The address is not repeated: it may hold a password where it must not.
        raise ValueError(f"{what} must be an address without user, query and fragment, such as {example}.")


class ConnectorSpec(Struct, eq=False, kw_only=True):
    """A registered connector: an OpenAPI document with an address, or a function of the author's."""

    name: str
    openapi: str | Path | Mapping[str, Any] | None = None
    """The document, its text, or its file; None: `handler` does the actions."""
    handler: Callable[..., Any] | None = None
    base_url: str | None = None
    """Address that the paths are below; None: as the document says."""
    auth: Authentication | None = None
    headers: Mapping[str, str] = {}
    """Headers of each request."""
    allow_private: bool = False
    """True if the address may be a private one."""
    idempotency_header: str | None = "Idempotency-Key"
    """Header of POST and PATCH that carries the action's key; None: no header."""
    built: Any = None
    """The connector that was made of this, once it was needed."""


def document_source(given: Any) -> str | Path | Mapping[str, Any]:
    """Check what was given as a document, short of reading it. Raises `TypeError` or `ValueError`."""
    if isinstance(given, Mapping):
        return given
    if isinstance(given, str) and (not given.strip() or "\n" in given or given.lstrip("\ufeff \t\r")[:1] in "{["):
        return given
    if not isinstance(given, str | os.PathLike):
        raise TypeError(f"openapi must be a path, a text in JSON or YAML, or a dict, not {type(given).__name__}.")
    if isinstance(given, str) and "://" in given:
        raise ValueError("openapi must be a file: save the document, so that it cannot change on its own.")
    path = Path(given).absolute()
    if not path.is_file():
        raise ValueError(f"openapi names no file: {path} is not there.")
    return path
