"""The webhook that tells problems to another service: one signed request for each.

The body is the problem as JSON. The header `Loom-Signature` is `t=SECONDS,v1=HEX`: HMAC-SHA256, with a secret that both
sides know, of the seconds, a dot and the body. While secrets are exchanged there is one `v1` for each.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import msgspec
from typing_extensions import override

if TYPE_CHECKING:
    from loom.api.problems import Problem

SECRET_VARIABLE = "LOOM_PROBLEM_SECRET"  # noqa: S105 - the name of the variable
SIGNATURE, PROBLEM_ID = "Loom-Signature", "Loom-Problem-Id"

_TIMEOUT_S = 10.0
_MAX_ANSWER = 64 * 1024
_LEAST_SECRET = 16


class WebhookRefused(Exception):
    """The service has not taken a problem: it will be told again."""


def signature(secrets: tuple[str, ...], at: int, body: bytes) -> str:
    """The header that says who sent a body, and when."""
    signed = [hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest() for secret in secrets]
    return ",".join([f"t={at}", *(f"v1={each}" for each in signed)])


class Webhook:
    """An address of the operator's, and the secrets that sign what is sent there. Neither is shown by its `repr`."""

    def __init__(self, url: str, secrets: str | None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"problem_webhook must be an address such as https://ops.example.com/loom, not {url!r}.")
        given = os.environ.get(SECRET_VARIABLE, "") if secrets is None else secrets
        self._secrets = tuple(filter(None, (each.strip() for each in given.split(","))))
        if not self._secrets:
            raise ValueError(f"A problem_webhook needs a secret that signs its requests: set {SECRET_VARIABLE}.")
        if any(len(secret) < _LEAST_SECRET for secret in self._secrets):
            raise ValueError(f"A secret in {SECRET_VARIABLE} must have at least {_LEAST_SECRET} characters.")
        self._url = url
        self._place = f"{parts.hostname}:{parts.port or (443 if parts.scheme == 'https' else 80)}"

    @override
    def __repr__(self) -> str:
        return f"Webhook({self._place!r})"

    async def tell(self, problem: Problem) -> None:
        """Send a problem; `WebhookRefused`, or an error of the connection, if it was not taken."""
        # What sends requests takes a while to load.
        from loom.effects.actions.discreet import secret_request
        from loom.effects.actions.exchange import Outgoing, exchange
        from loom.effects.actions.guarded import shared_client
        from loom.effects.actions.ssrf import HttpPolicy

        # The operator has named this host: it may be a private one. No redirect leads to another.
        policy = replace(
            HttpPolicy.allowing(self._place),
            max_response_bytes=_MAX_ANSWER, request_timeout_s=_TIMEOUT_S, max_redirects=0,
        )  # fmt: skip
        body = msgspec.json.encode(problem)
        headers = {
            "Content-Type": "application/json",
            SIGNATURE: signature(self._secrets, int(time.time()), body),
            PROBLEM_ID: hashlib.sha256(problem.id.encode("utf-8", "surrogatepass")).hexdigest()[:32],
        }
        with secret_request():
            answer = await exchange(await shared_client(policy), Outgoing("POST", self._url, headers, body), policy)
        if not 200 <= answer.status < 300:  # noqa: PLR2004 - the codes that mean yes
            raise WebhookRefused(f"{self._place} answered {answer.status}.")
