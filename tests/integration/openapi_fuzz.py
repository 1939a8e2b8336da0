"""Fuzzes every operation of the OpenAPI document over HTTP, with and without keys.

`python tests/integration/openapi_fuzz.py --examples 200` is the long form; the tests have a short one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CheckFunction
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

sys.path.insert(0, str(Path(__file__).parent))

from openapi_fuzz_server import DOCUMENTS, ENDING, SCHEDULES, STORED, WORKFLOWS, FuzzedServer, fuzzed_server

CHECKS: list[CheckFunction] = [
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]
STREAMS = ("/events/{handler_id}", "/v1/runs/{run_id}/stream")
FIELDS = {"workflow": WORKFLOWS, "type": ("Answer", "Go", "Nudge"), "handler_id": ("done-0", "waiting-0", "new")}
"""Fields of bodies, and values that mean something."""

_Case = schemathesis.Case
_Operation = schemathesis.APIOperation[Any, Any, Any, Any]


class Campaign:
    """Requests of one caller to one server."""

    def __init__(self, server: FuzzedServer, examples: int, key: str | None = None) -> None:
        self.server = server
        self.answers: Counter[int] = Counter()
        self.failures: list[str] = []
        self._examples = examples
        self._headers = {"Authorization": f"Bearer {key}"} if key is not None else {}
        self._session = requests.Session()
        document = self._session.get(f"{server.url}/openapi.json", timeout=10).json()
        self._schema = schemathesis.openapi.from_dict(document)

    def operations(self) -> Iterator[_Operation]:
        """All of them; what reads comes first, and what deletes last."""
        found = [each.ok() for each in self._schema.get_all_operations()]
        order = {"get": 0, "head": 0, "options": 0, "post": 1, "put": 2, "patch": 2, "delete": 3}
        yield from sorted(found, key=lambda each: order[each.method])

    def ask(self, operation: _Operation, check: Callable[[_Case, Any], None], *, negative: bool = False) -> None:
        """Make requests for an operation, good ones or bad ones, and look at the answers."""
        mode = schemathesis.GenerationMode.NEGATIVE if negative else schemathesis.GenerationMode.POSITIVE

        @settings(
            max_examples=self._examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(operation.as_strategy(generation_mode=mode), st.integers(0, 99))
        def asked(case: _Case, number: int) -> None:
            self._make_meaningful(case, number)
            response = case.call(
                base_url=self.server.url, session=self._session, headers=dict(self._headers), timeout=10
            )
            self.answers[response.status_code] += 1
            check(case, response)

        try:
            asked()
        except (AssertionError, FailureGroup) as error:
            self.failures.append(f"{operation.method.upper()} {operation.path}\n{error}")

    def _make_meaningful(self, case: _Case, number: int) -> None:
        """Let most requests concern something that is there."""
        for name in ("X-API-Key", "Authorization"):
            case.headers.pop(name, None)
        if number % 4 == 0:
            return
        for name in case.path_parameters:
            known = self._known(case.operation.path, name)
            case.path_parameters[name] = known[number % len(known)]
        if case.operation.path.startswith("/v1/definitions") and case.media_type == "application/json":
            case.body = DOCUMENTS[number % len(DOCUMENTS)]
        elif isinstance(case.body, dict):
            for name, values in FIELDS.items():
                if isinstance(case.body.get(name), str):
                    case.body[name] = values[number % len(values)]

    def _known(self, path: str, name: str) -> tuple[str, ...] | list[str]:
        match name:
            case "run_id" | "handler_id":
                # A stream of a run that goes on has no end.
                return self.server.ended if path in STREAMS else [*self.server.ended, *self.server.running]
            case "name":
                return ENDING if path.endswith("/run") else (*WORKFLOWS, STORED)
            case "schedule_id":
                return SCHEDULES
            case _:
                return ("unknown",)


def scope_of(operation: _Operation) -> str | None:
    """What a key needs for an operation; None if everybody may ask."""
    security = operation.definition.raw["security"]
    return next(iter(security[0].values()))[0] if security else None


def can_be_wrong(operation: _Operation) -> bool:
    """Whether a request can bring something that its schema does not allow."""
    return bool(operation.query.items or operation.path_parameters.items or operation.body.items)


def conforms(case: _Case, response: Any) -> None:
    """The answer is one that the document has, and none that tells of a fault of the server."""
    if response.status_code >= 500:
        # A run that failed is a 500 on the compatible routes, as in the protocol that they speak.
        told = response.status_code == 500 and "compatible" in case.operation.tags and "handler_id" in response.json()
        assert told, f"{case.as_curl_command()} -> {response.status_code} {response.text}"
    case.validate_response(response, checks=CHECKS)


def refused_with(*statuses: int) -> Callable[[_Case, Any], None]:
    """The answer is one of these refusals."""

    def check(case: _Case, response: Any) -> None:
        assert response.status_code in statuses, f"{case.as_curl_command()} -> {response.status_code} {response.text}"

    return check


def without_keys(server: FuzzedServer, examples: int) -> Campaign:
    """Somebody on the same machine, while there are no keys."""
    campaign = Campaign(server, examples)
    for operation in campaign.operations():
        if operation.method != "delete":  # these come with the administrator
            campaign.ask(operation, conforms)
    return campaign


def as_administrator(server: FuzzedServer, examples: int, key: str) -> Campaign:
    """Somebody who may do everything."""
    campaign = Campaign(server, examples, key)
    for operation in campaign.operations():
        campaign.ask(operation, conforms)
        if can_be_wrong(operation):
            campaign.ask(operation, conforms, negative=True)
    return campaign


def as_stranger(server: FuzzedServer, examples: int, key: str | None = None) -> Campaign:
    """Somebody without a key, or with a wrong one, where keys are needed."""
    campaign = Campaign(server, examples, key)
    check = refused_with(401) if key is None else refused_with(401, 429)  # guessing is limited
    for operation in campaign.operations():
        if scope_of(operation) is not None:
            campaign.ask(operation, check)
    return campaign


def as_reader(server: FuzzedServer, examples: int, key: str) -> Campaign:
    """Somebody who may only read."""
    campaign = Campaign(server, examples, key)
    for operation in campaign.operations():
        if scope_of(operation) not in (None, "read"):
            campaign.ask(operation, refused_with(403))
    return campaign


def main() -> None:
    """The long form."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=100, help="requests per operation and campaign")
    examples = parser.parse_args().examples
    with tempfile.TemporaryDirectory() as folder, fuzzed_server(Path(folder)) as server:
        failures = _told("without keys", without_keys(server, examples))
        admin, reader = server.key("admin"), server.key("read")
        failures += _told("strangers", as_stranger(server, examples))
        failures += _told("guessers", as_stranger(server, examples, admin[:-4] + "0000"))
        failures += _told("readers", as_reader(server, examples, reader))
        failures += _told("administrators", as_administrator(server, examples, admin))
    sys.exit("\n\n".join(failures) or None)


def _told(name: str, campaign: Campaign) -> list[str]:
    """Say how a campaign went; return what went wrong."""
    counts = ", ".join(f"{status}: {count}" for status, count in sorted(campaign.answers.items()))
    sys.stdout.write(f"{name}: {campaign.answers.total()} requests ({counts}), {len(campaign.failures)} failures\n")
    sys.stdout.flush()
    return campaign.failures


if __name__ == "__main__":
    main()
