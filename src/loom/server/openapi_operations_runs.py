"""The operations of `/v1` on runs and on the server itself. May import the shapes and the words for operations."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta

from loom.api.why import Why
from loom.runtime.shapes import Action, HistoryItem, Id, Loop, Moment, Replay, Run, State, StreamEntry
from loom.server.openapi_model import (
    CURSOR,
    IF_NONE_MATCH,
    JSON,
    LAST_EVENT_ID,
    LIMIT,
    TEXT,
    Answer,
    Body,
    Cursor,
    Number,
    Operation,
    Operations,
    Param,
    Seconds,
)
from loom.server.shapes import Acted, Alive, Delivery, Page, Readiness
from loom.server.shapes_requests import CancelRequest, EventRequest, ForkRequest, NoFields, RetryRequest, StartRequest
from loom.store.records import RunStatus

_WAIT = Param("wait", Seconds, "Wait for the run's end, at most so many seconds, and at most 60.")
_RUN = Answer("The run as it is now.", Run, headers=("ETag",))
_NEW_RUN = Answer("The run was started.", Run, headers=("ETag", "Location"))
_TOLD = Answer("It is stored; the run as it is now.", Run, headers=("ETag",))
_SAME = Answer("Nothing has changed.", headers=("ETag",))
_AFTER = Annotated[int, Meta(ge=-1, le=2**53)]
_Tag = Annotated[str, Meta(pattern="^[^=]+=")]


def _told(name: str, summary: str) -> Operation:
    return Operation(
        f"{name}Run", "runs", summary, {202: _TOLD}, ("run-finished",), body=Body(NoFields, required=False)
    )


_LISTED = (
    Param("status", list[RunStatus], "Any of these."),
    Param("workflow", list[str], "Runs of any of these workflows."),
    Param("idle", bool, "Whether only something from outside can move the run."),
    Param("idle_longer_than", Seconds, "Idle for more than so many seconds; implies running and idle."),
    Param("waiting_for", str, "The name of an event type that the run waits for."),
    Param("created_after", Moment, "Started after this moment."),
    Param("created_before", Moment, "Started before this moment."),
    Param("tag", list[_Tag], "A tag of the run in the form `name=value`; all of them, if several."),
    Param("parent_id", Id, "Children of this run."),
    Param("paused", bool, "Whether the run is paused."),
    Param("parked", bool, "Whether the run cannot go on with the code at hand."),
    Param("stuck", bool, "Whether the run is idle, waits for nothing, and is neither paused nor parked."),
    Param("order", Literal["created_at", "-created_at"], "Oldest first, or newest first, as it is if nothing is said."),
    Param("include", Literal["result"], "With the results of the runs, which are null otherwise."),
    LIMIT,
    CURSOR,
)

RUNS: Operations = {
    ("POST", "/v1/runs"): Operation(
        "startRun",
        "runs",
        "Start a run",
        {201: _NEW_RUN, 200: Answer("This very run had been started before.", Run, headers=("ETag",))},
        ("definition-not-found", "run-exists", "version-mismatch", "draining", "memory-exceeded"),
        params=(_WAIT,),
        body=Body(StartRequest),
        description="Answered once the start is stored. The same `run_id`, workflow and input start one run only.",
    ),
    ("GET", "/v1/runs"): Operation(
        "listRuns",
        "runs",
        "List runs",
        {200: Answer("A page of runs.", Page[Run])},
        params=_LISTED,
        description="`result` is null unless it is asked for, texts of errors are cut at 16 KiB, and a page ends early "
        "where it would have more than 8 MiB: go on with `next_cursor`.",
    ),
    ("GET", "/v1/runs/{run_id}"): Operation(
        "getRun", "runs", "Get a run", {200: _RUN, 304: _SAME}, params=(_WAIT, IF_NONE_MATCH)
    ),
    ("DELETE", "/v1/runs/{run_id}"): Operation(
        "deleteRun",
        "runs",
        "Delete a run that has ended, with its history, state and events",
        {204: Answer("It is gone.")},
        ("run-active",),
    ),
    ("POST", "/v1/runs/{run_id}/events"): Operation(
        "sendEvent",
        "runs",
        "Send an event into a run",
        {200: Answer("The event is stored.", Delivery)},
        ("run-finished",),
        body=Body(EventRequest),
        description="The scope `event` is for what the run waits for, answers that a step takes, and types that the "
        "workflow declares. Any other type needs `admin`, and is recorded; the engine's own are refused.",
    ),
    ("POST", "/v1/runs/{run_id}/cancel"): Operation(
        "cancelRun",
        "runs",
        "Cancel a run",
        {202: _TOLD, 200: Answer("It was cancelled before.", Run, headers=("ETag",))},
        ("run-finished",),
        body=Body(CancelRequest, required=False),
    ),
    ("POST", "/v1/runs/{run_id}/pause"): _told("pause", "Pause a run: it keeps events and starts nothing"),
    ("POST", "/v1/runs/{run_id}/resume"): _told("resume", "Let a paused run go on"),
    ("POST", "/v1/runs/{run_id}/retry"): Operation(
        "retryRun",
        "runs",
        "Let a failed run go on from its failed step",
        {202: _TOLD},
        ("run-finished", "run-active"),
        body=Body(RetryRequest, required=False),
        description="With an event it goes on with that one in place of the last of its type that the failed step got. "
        "A type that is neither a start event nor one that the scope `event` may send needs `admin`.",
    ),
    ("POST", "/v1/runs/{run_id}/fork"): Operation(
        "forkRun",
        "runs",
        "Start a new run from a past state of this one",
        {201: _NEW_RUN},
        ("run-exists", "history-gone", "draining", "memory-exceeded"),
        body=Body(ForkRequest),
        description="What was in progress at that tick runs again. The original is never touched.",
    ),
    ("GET", "/v1/runs/{run_id}/stream"): Operation(
        "streamRun",
        "runs",
        "Read the events of a run as they come",
        {
            200: Answer("The events; the stream ends with the run.", StreamEntry, is_stream=True),
            204: Answer("The stream has ended before this cursor."),
        },
        ("draining",),
        params=(
            Param(
                "after", Cursor | Literal["now"], "The cursor behind which to begin: -1, the beginning, if not said."
            ),
            Param("internal", bool, "With the engine's own events too."),
            Param("type", list[Annotated[str, Meta(min_length=1)]], "Only events of these types, by name."),
            LAST_EVENT_ID,
        ),
        description="Server-sent events, or lines of JSON if `Accept` names them first.",
    ),
    ("GET", "/v1/runs/{run_id}/history"): Operation(
        "getHistory",
        "runs",
        "Read the ticks of a run",
        {200: Answer("A page of ticks.", Page[HistoryItem])},
        ("history-gone",),
        params=(
            Param("after", _AFTER, "Begin behind this tick."),
            Param("type", list[str], "Only ticks of these types, such as `TickAddEvent`."),
            Param("commands", bool, "Add what each tick led to, by replay."),
            LIMIT,
            Param("cursor", _AFTER, CURSOR.description),
        ),
    ),
    ("GET", "/v1/runs/{run_id}/why"): Operation(
        "whyRun",
        "runs",
        "Ask what holds a run now",
        {200: Answer("One sentence, and its causes as data.", Why)},
    ),
    ("GET", "/v1/runs/{run_id}/state"): Operation(
        "getState",
        "runs",
        "Look at the state of a run, now or after a past tick",
        {200: Answer("The state.", State), 304: _SAME},
        ("history-gone",),
        params=(Param("tick", Number, "After this tick; a past state never changes."), IF_NONE_MATCH),
    ),
    ("GET", "/v1/runs/{run_id}/replay"): Operation(
        "replayRun",
        "runs",
        "See whether the journal of a run still gives what is stored",
        {200: Answer("What a replay has found.", Replay)},
        ("result-unreadable",),
    ),
    ("GET", "/v1/runs/{run_id}/loops"): Operation(
        "getLoops",
        "runs",
        "See how far the loops of a flow are",
        {200: Answer("Its loops.", Page[Loop])},
        params=(Param("all", bool, "Also those that have ended."),),
    ),
    ("GET", "/v1/runs/{run_id}/actions"): Operation(
        "getActions",
        "runs",
        "See what became of the actions of a flow",
        {200: Answer("Its actions.", Page[Action])},
        params=(Param("path", str, "One action of one repetition, such as `outer[2]/inner`."),),
    ),
}

SERVER: Operations = {
    ("GET", "/v1/health/live"): Operation(
        "isLive", "server", "Whether the process answers", {200: Answer("It does.", Alive)}
    ),
    ("GET", "/v1/health/ready"): Operation(
        "isReady",
        "server",
        "Whether the server takes work",
        {200: Answer("It does.", Readiness), 503: Answer("It does not; the reasons are named.", Readiness)},
    ),
    ("GET", "/v1/audit"): Operation(
        "listActs",
        "server",
        "See what operators did, and what keys were refused",
        {200: Answer("A page of acts, newest first.", Page[Acted])},
        params=(LIMIT, CURSOR),
    ),
    ("GET", "/metrics"): Operation(
        "getMetrics", "server", "Figures for Prometheus", {200: Answer("Text in its format 0.0.4.", str, (TEXT,))}
    ),
    ("GET", "/openapi.json"): Operation(
        "getOpenApi", "server", "This document", {200: Answer("OpenAPI 3.1.", dict[str, Any], (JSON,))}
    ),
}
