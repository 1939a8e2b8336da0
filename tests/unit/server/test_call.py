"""Bodies of requests are decoded as their routes declare, and a refusal names the place and what belongs there."""

from __future__ import annotations

from typing import Any

import pytest

from loom.api.requests import EventRequest, ForkRequest, NoFields, Request, RetryRequest, ScheduleRequest, StartRequest
from loom.server.app import ROUTES
from loom.server.call import decoded
from loom.server.problems import ApiProblem

_START = {"workflow": "w"}
_EVERY = {"name": "n", "workflow": "w"}
_ID = "must be 1 to 200 characters of A-Z a-z 0-9 . _ : ~ -"


@pytest.mark.parametrize(
    ("kind", "body", "path", "message"),
    [
        (StartRequest, [], "", "The body must be an object."),
        (StartRequest, None, "/workflow", "The field 'workflow' is missing."),
        (StartRequest, {"workflow": None}, "/workflow", "The field 'workflow' is missing."),
        (StartRequest, {"workflow": 3}, "/workflow", "The field 'workflow' must be a string."),
        (StartRequest, {**_START, "version": 0}, "/version", "The field 'version' must be a number from 1 on."),
        (StartRequest, {**_START, "version": True}, "/version", "The field 'version' must be a number from 1 on."),
        (StartRequest, {**_START, "version": 1.5}, "/version", "The field 'version' must be a number from 1 on."),
        (StartRequest, {**_START, "run_id": "a b"}, "/run_id", f"run_id {_ID}"),
        (StartRequest, {**_START, "run_id": 7}, "/run_id", f"run_id {_ID}"),
        (StartRequest, {**_START, "parameters": []}, "/parameters", "The field 'parameters' must be an object."),
        (StartRequest, {**_START, "tags": "a"}, "/tags", "The field 'tags' must be an object."),
        (StartRequest, {**_START, "tags": {"a": 1}}, "/tags", "The tag 'a' must be a string, not int."),
        (ForkRequest, {"tick": -1}, "/tick", "The field 'tick' must be a number from 0 on."),
        (EventRequest, {"type": "E", "step": 1}, "/step", "The field 'step' must be a string."),
        (EventRequest, {"type": "E", "event_id": ""}, "/event_id", f"event_id {_ID}"),
        (RetryRequest, {"event": 1}, "/event", 'An event is an object {"type": "…", "value": {…}}.'),
        (RetryRequest, {"event": {"type": 1}}, "/event", 'An event is an object {"type": "…", "value": {…}}.'),
        (
            RetryRequest,
            {"event": {"type": "E", "x": 1}},
            "/event",
            'An event is an object {"type": "…", "value": {…}}.',
        ),
        (ScheduleRequest, {**_EVERY, "every": "soon"}, "/every", "The field 'every' must be a number of seconds."),
        (ScheduleRequest, {**_EVERY, "paused": 1}, "/paused", "The field 'paused' must be true or false."),
        (NoFields, {"a/b": 1}, "/a~1b", "The field 'a/b' is not known: use ."),
    ],
)
def test_what_does_not_fit_is_named(kind: type[Request], body: Any, path: str, message: str) -> None:
    with pytest.raises(ApiProblem) as caught:
        decoded(body, kind)
    assert (caught.value.code, caught.value.detail) == ("invalid-request", message)
    assert [(place.path, place.message) for place in caught.value.errors or ()] == [(path, message)]


def test_null_counts_as_left_out() -> None:
    found = decoded({"workflow": "w", "run_id": None, "tags": None, "input": None}, StartRequest)
    assert found == StartRequest(workflow="w")


def test_input_is_taken_as_it_is() -> None:
    given = {"big": 10**30, "deep": [{"a": [None, 1.5]}]}
    assert decoded({"workflow": "w", "input": given}, StartRequest).input == given


def test_every_field_of_a_request_has_words_for_what_belongs_there() -> None:
    declared = {route.body.type for route in ROUTES if route.body is not None}
    for kind in (each for each in declared if isinstance(each, type) and issubclass(each, Request)):
        required = {name: "x" for name in kind.__struct_fields__ if name in ("workflow", "name", "type")}
        also = {"tick": 0, "action": "cancel", "filter": {}}
        required |= {name: value for name, value in also.items() if name in kind.__struct_fields__}
        for name in kind.__struct_fields__:
            if name in ("input", "value"):
                continue  # whatever JSON has
            with pytest.raises(ApiProblem, match=r"must be|An event is"):
                decoded({**required, name: [[]]}, kind)
