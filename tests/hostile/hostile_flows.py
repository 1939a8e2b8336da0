"""Random flows that mean harm, as documents and inputs. A case follows from its seed and number alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import hostile_answers
import hostile_bodies
from hostile_expressions import PATHS, deep, expression, given, large, literal, quoted

ANSWERS = "http://answers.invalid"
"""Stands in documents and inputs for the address of the answers, which differs each time."""


HEADERS: tuple[Any, ...] = (
    *({"X-A": "b\r\nX-C: d"}, {"Content-Length": "5"}, {"Transfer-Encoding": "chunked"}, {"Content-Encoding": "gzip"}),
    *({"a b": 1}, {"X": "é" * 100_000}, {"Content-Type": "\x00"}, {"a": deep(5)}, [], {"Set-Cookie": "a\x00"}),
)
"""Headers that a flow answers with."""


@dataclass(frozen=True)
class Case:
    """One hostile thing to do to a server."""

    family: str
    kind: str
    document: Any = None
    """A flow to store, as data, or as a text that is sent as it is. None: a workflow in Python is started."""
    workflow: str = ""
    """The workflow in Python."""
    input: Any = None
    raw: str | None = None
    """The whole request to start a run, in place of one that is made of the input. One character is one byte."""
    invoke: bool = False
    """Fire the flow's trigger, so that its response becomes that of the server."""
    event: Any = None
    """An event to send to the run once it waits."""
    may_wait: bool = False
    """It waits for something that never comes, so it is cancelled in the end."""
    may_be_long: bool = False
    """It has much to do, so it is cancelled if it takes too long."""
    step: str = ""
    """The step that holds the event loop."""

    @property
    def runs_python(self) -> bool:
        """Whether hostile Python code runs in the server: a step, an activity, or a child of either kind."""
        return self.family == "body" or any(name in self.shown() for name in ("hostile", "Contained", "Threaded"))

    def shown(self) -> str:
        """The case as JSON, which `--case` takes."""
        return json.dumps(vars(self))


def _flow(kind: str, actions: dict[str, Any], given: Any = None, **more: Any) -> Case:
    rest = {name: more.pop(name) for name in ("parameters", "outputs", "triggers") if name in more}
    return Case("flow", kind, document={"actions": actions, **rest}, input=given, **more)


def _compose(inputs: Any) -> dict[str, Any]:
    return {"type": "compose", "inputs": inputs}


def expressions(chance: Random, size: int) -> Case:
    """Random calls, in each other."""
    depth = chance.choice((1, 2, 2, 3, 4))
    actions = {f"a{n}": _compose("@" + expression(chance, depth)) for n in range(chance.randint(1, 4))}
    for action in list(actions.values())[1:]:
        action["runAfter"] = {}
    return _flow("expressions", actions, given(chance, size))


def repeated(chance: Random, size: int) -> Case:
    """One template many times in one action, or in one text."""
    text, count = large(chance), chance.choice((5, 30, 100, 400))
    inputs: Any = ["@" + text] * count if chance.random() < 0.6 else f"@{{{text}}}" * count
    return _flow("repeated", {"a": _compose(inputs)}, given(chance, size))


def xpaths(chance: Random, size: int) -> Case:
    """Paths over XML of the caller."""
    inputs = [
        f"@xpath(xml(triggerBody()?['xml']), {quoted(chance.choice(PATHS))})" for _ in range(chance.randint(1, 6))
    ]
    return _flow("xpath", {"a": _compose(inputs)}, given(chance, size))


def loops(chance: Random, size: int) -> Case:
    """Loops in loops, wide or deep."""
    actions: dict[str, Any] = {"leaf": _compose("@" + chance.choice((literal(chance), large(chance), "item()")))}
    for number in range(chance.choice((1, 2, 3, 6))):
        count = chance.choice((3, 10, 50)) if number else chance.choice((10, 100, 500))
        actions = {f"l{number}": _loop(chance, actions, count)}
    return _flow("loops", actions, given(chance, size // 10), may_be_long=True)


def _loop(chance: Random, actions: dict[str, Any], count: int) -> dict[str, Any]:
    match chance.choice(("foreach", "foreach", "until", "while", "doUntil", "retry", "apps")):
        case "foreach":
            made = {"type": "foreach", "items": f"@range(0,{count})", "actions": actions}
            if chance.random() < 0.5:
                made["runtimeConfiguration"] = {"concurrency": {"repetitions": chance.choice((2, 20, 50))}}
            return made
        case "retry":
            policy = {"type": "fixed", "count": min(count, 20), "interval": "PT0.01S", "minimumInterval": "PT0S"}
            return {"type": "retry", "action": {"type": "scope", "actions": actions}, "retryPolicy": policy}
        case "apps":
            return {
                "type": "Until",
                "expression": "@equals(1,2)",
                "limit": {"count": min(count, 60)},
                "actions": actions,
            }
        case kind:
            condition = "@less(variables('loopIndex'), 999999)" if kind == "while" else "@equals(1, 2)"
            return {"type": kind, "condition": condition, "limit": {"count": count}, "actions": actions}


def schemas(chance: Random, size: int) -> Case:
    """JSON Schemas whose paths multiply, or that have no end."""
    match chance.randrange(5):
        case 0:
            levels = chance.choice((5, 12, 18))
            definitions: dict[str, Any] = {"d0": {"type": "integer"}}
            for n in range(1, levels):
                definitions[f"d{n}"] = {
                    "anyOf": [{"$ref": f"#/definitions/d{n - 1}"}, {"$ref": f"#/definitions/d{n - 1}"}]
                }
            schema: Any = {"definitions": definitions, "$ref": f"#/definitions/d{levels - 1}"}
        case 1:
            schema = {"anyOf": [{"type": "array", "items": {"$ref": "#"}}, {"type": "object"}, {"$ref": "#/anyOf/0"}]}
        case 2:
            schema = {"$ref": "#"}
        case 3:
            patterns = {chance.choice(("^(a+)+$", "(a|a)*b", "(.*)*x", "[")): {"type": "string", "pattern": "^(a+)+$"}}
            schema = {"type": "object", "patternProperties": patterns, "pattern": "^(a+)+$"}
        case _:
            schema = {"items": {"uniqueItems": True}, "uniqueItems": True, "enum": [deep(50)] * 100, "minLength": 1e999}
    content = chance.choice(
        ("@triggerBody()?['text']", "@triggerBody()?['array']", "@triggerBody()?['deep']", "@triggerBody()")
    )
    inputs = {"content": content, "schema": schema}
    return _flow("schema", {"a": {"type": "parseJson", "inputs": inputs}}, given(chance, size))


def literals(chance: Random, size: int) -> Case:
    """Documents that are large or deep themselves."""
    match chance.randrange(6):
        case 0:
            actions: dict[str, Any] = {"a": _compose("x" * size)}
        case 1:
            actions = {"a": _compose(deep(chance.choice((50, 90, 500, 5000)) // 10))}
        case 2:
            actions = {f"a{n}": _compose(f"@outputs('a{n - 1}')" if n else "x") for n in range(min(size // 400, 500))}
        case 3:
            actions = {"a": _compose("@" + "concat(" * 200 + "'x'" + ")" * 200)}
        case 4:
            actions = {"a": _compose([f"@{{1}}{n}" for n in range(min(size // 10, 20_000))])}
        case _:
            count = min(size // 200, 300)
            after = {f"a{n}": {f"a{m}": [] for m in range(n)} for n in range(count // 10)}
            actions = {name: {**_compose("x"), "runAfter": before} for name, before in after.items()}
    return _flow("literal", actions)


def raw_documents(chance: Random, size: int) -> Case:
    """Documents that are no documents."""
    text = chance.choice(
        (
            '{"actions":' * 5000,
            "[" * 100_000 + "]" * 100_000,
            '{"actions":{"a":{"type":"compose","inputs":1e999}}}',
            '{"actions":{"a":{"type":"compose","inputs":NaN}}}',
            '{"actions":{"a":{"type":"compose","inputs":' + "9" * 6000 + "}}}",
            '{"actions":{"a":{"type":"compose","inputs":"\\ud800"}}}',
            '{"actions":{"\\ud800":{"type":"compose","inputs":"x"}}}',
            '{"actions":{"a":{"type":"compose"},"a":{"type":"compose"}}}',
            '{"actions":{"a":{"type":"compose","inputs":' + '{"a":' * 300 + "1" + "}" * 300 + "}}}",
            '{"actions":{"a":{"type":"wait","inputs":{"interval":{"count":1e308,"unit":"month"}}}}}',
            '{"actions":{"a":{"type":"wait","inputs":{"until":{"timestamp":"9999-12-31T23:59:59Z"}}}}}',
            '{"actions":{"a":{"type":"if","condition":' + '{"not":' * 400 + "true" + "}" * 400 + "}}}",
            '{"actions":' + '{"s":{"type":"scope","actions":' * 120 + "{}" + "}}" * 120 + "}",
            "\xff\xfe\x00",
            "",
            '{"triggers":{"t":{"type":"Recurrence","recurrence":{"frequency":"Second","interval":0}}},"actions":{}}',
        )
    )
    return Case("flow", "raw-document", document=text, may_wait=True)


def tables(chance: Random, size: int) -> Case:
    """Templates over each element of a large array."""
    source = chance.choice(
        ("@triggerBody()?['array']", "@range(1,3000)", "@range(1,100000)", "@split(triggerBody()?['text'],'')")
    )
    inner = "@" + chance.choice((large(chance), literal(chance), "item()", "string(item())"))
    kind = chance.choice(("select", "query", "table", "html", "join"))
    match kind:
        case "select":
            inputs: Any = {"from": source, "select": {"a": inner, "b": "@item()"}}
        case "query":
            inputs = {"from": source, "where": f"@equals(length(string({inner[1:]})), 3)"}
        case "join":
            inputs = {"from": source, "joinWith": inner}
        case _:
            columns = [{"header": f"h{n}", "value": inner} for n in range(chance.choice((1, 5, 50)))]
            inputs = {"from": source, "format": "HTML" if kind == "html" else "CSV", "columns": columns}
    action = {"type": "table" if kind == "html" else kind, "inputs": inputs}
    return _flow("table", {"a": action}, given(chance, size))


def secure(chance: Random, size: int) -> Case:
    """Secure data that many pass on to each other."""
    hidden = {"secureData": {"properties": ["inputs", "outputs"]}}
    count = chance.choice((5, 50, 200))
    actions = {"a0": {**_compose("@" + expression(chance, 2)), "runtimeConfiguration": hidden}}
    for n in range(1, count):
        texts = [f"@outputs('a{m}')" for m in range(max(0, n - 3), n)]
        actions[f"a{n}"] = _compose(chance.choice((texts, texts[-1], f"@{{{texts[-1][1:]}}}")))
    return _flow("secure", actions, given(chance, size // 10))


def growing(chance: Random, size: int) -> Case:
    """Variables that double."""
    kind = chance.choice(("String", "Array"))
    declared = {"name": "v", "type": kind, "value": "ab" if kind == "String" else [1, 2]}
    grown = (
        "@concat(variables('v'), variables('v'))"
        if kind == "String"
        else "@union(variables('v'), createArray(variables('v')))"
    )
    if kind == "Array" and chance.random() < 0.7:
        grown = "@createArray(variables('v'), variables('v'))"
    body = {
        "keep": _compose(grown),
        "set": {"type": "setVariable", "inputs": {"name": "v", "value": "@outputs('keep')"}},
    }
    if chance.random() < 0.3:
        body["more"] = {"type": f"appendTo{kind}Variable", "inputs": {"name": "v", "value": "@string(variables('v'))"}}
    loop = {
        "type": "doUntil",
        "condition": "@equals(1,2)",
        "limit": {"count": chance.choice((10, 40, 1000))},
        "actions": body,
    }
    begin = {"type": "initializeVariable", "inputs": {"variables": [declared]}}
    return _flow("growing", {"begin": begin, "grow": loop}, may_be_long=True)


def ending(chance: Random, size: int) -> Case:
    """Runs that end themselves while much is under way."""
    stop = {
        "type": "terminate",
        "inputs": {"runStatus": chance.choice(("Succeeded", "Failed", "Cancelled", "@{item()}", "x"))},
    }
    if chance.random() < 0.5:
        stop["inputs"]["runError"] = {"code": "x" * 10_000, "message": "@" + large(chance)}
    wide = {
        "type": "foreach",
        "items": "@range(0,200)",
        "actions": {"w": {"type": "wait", "inputs": {"interval": "PT30S"}}},
    }
    wide["runtimeConfiguration"] = {"concurrency": {"repetitions": 50}}
    actions = {"wide": {**wide, "runAfter": {}}, "stop": {**stop, "runAfter": {}}}
    return _flow("terminate", actions, given(chance, 1000), may_wait=True)


def waiting(chance: Random, size: int) -> Case:
    """Waits for events and times, with hostile answers."""
    inputs: dict[str, Any] = {"event": "Go", "prompt": "@" + expression(chance, 1)}
    forever = chance.random() < 0.4
    if not forever:
        inputs["timeout"] = chance.choice(("PT0.3S", "PT0S", 0.5, "@triggerBody()?['number']", "P99999999D", "-PT1S"))
    if chance.random() < 0.6:
        inputs["schema"] = {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}}]}
    event = chance.choice(({"a": deep(40)}, {"a": "x" * 100_000}, ["\ud800"], None, {"a": list(range(50_000))}))
    case = _flow(
        "waiting", {"a": {"type": "waitForEvent", "inputs": inputs}, "b": _compose("@body('a')")}, given(chance, 1000)
    )
    return Case(**{**case.__dict__, "event": event, "may_wait": True})


def responses(chance: Random, size: int) -> Case:
    """Answers of a flow to its caller, whatever they are."""
    inputs = {
        "statusCode": chance.choice((200, 99, 1000, -1, 204, 101, "200", "@triggerBody()?['number']", 1e308, None)),
        "headers": chance.choice(HEADERS),
        "body": chance.choice(
            ("@" + large(chance), "@triggerBody()", "\ud800", None, {"$content-type": "x", "$content": "!"})
        ),
    }
    by_request = {"by_request": {"type": "Request", "kind": "Http"}}
    actions = {"a": {"type": "Response", "inputs": inputs}}
    made = _flow("response", actions, given(chance, size), triggers=by_request)
    return Case(**{**made.__dict__, "invoke": True})


def children(chance: Random, size: int) -> Case:
    """Runs that start runs."""
    name = chance.choice(("Contained", "Contained", "no such workflow", "loom.scheduler", "\ud800"))
    start = {
        "type": "workflow",
        "inputs": {"workflow": name, "body": {"kind": chance.choice(hostile_bodies.CONTAINED)}},
    }
    loop = {"type": "foreach", "items": f"@range(0,{chance.choice((3, 40))})", "actions": {"c": start}}
    loop["runtimeConfiguration"] = {"concurrency": {"repetitions": chance.choice((1, 20))}}
    case = _flow("children", {"a": loop})
    return Case(**{**case.__dict__, "may_wait": True, "may_be_long": True})


def itself(chance: Random, size: int) -> Case:
    """A flow that starts itself, once or more."""
    start = {"type": "workflow", "inputs": {"workflow": "@workflow()['name']", "body": "@triggerBody()"}}
    loop = {"type": "foreach", "items": [1, 2][: chance.choice((1, 2))], "actions": {"c": start}}
    loop["runtimeConfiguration"] = {"concurrency": {"repetitions": chance.choice((1, 2))}}
    case = _flow("itself", {"a": loop})
    return Case(**{**case.__dict__, "may_wait": True, "may_be_long": True})


def activities(chance: Random, size: int) -> Case:
    """Handlers of flows with hostile ends."""
    kinds = [
        *hostile_bodies.RESULTS,
        *("str-raises", "repr-raises", "message-huge", "SystemExit", "GeneratorExit", "base"),
    ]
    kinds += [
        "KeyboardInterrupt",
        "CancelledError",
        "recursion",
        "stop-iteration",
        "cause-cycle",
        "group",
        "MemoryError",
    ]
    name, kind = chance.choice(("hostile", "hostile-sync")), chance.choice(kinds)
    action = {"type": "activity", "inputs": {"activityType": name, "input": kind}}
    return _flow(
        f"activity-{kind}",
        {"a": action, "b": {**_compose("@string(actions('a'))"), "runAfter": {"a": ["Failed", "Succeeded"]}}},
    )


def actors(chance: Random, size: int) -> Case:
    """Actors with hostile names, and state that grows."""
    inputs = {"actorType": "hoarder", "input": "@triggerBody()?['text']"}
    if chance.random() < 0.6:
        inputs["actorId"] = chance.choice(
            ("a", "\ud800", "x" * 5000, "../..", "a:b", "@item()", "", "@triggerBody()?['text']")
        )
    loop = {
        "type": "foreach",
        "items": f"@range(0,{chance.choice((5, 60))})",
        "actions": {"c": {"type": "actor", "inputs": inputs}},
    }
    return _flow("actors", {"a": loop}, given(chance, size))


def answers(chance: Random, size: int) -> Case:
    """Requests whose answers mean harm."""
    name = chance.choice(hostile_answers.NAMES)
    inputs: dict[str, Any] = {"uri": f"{ANSWERS}/{name}", "method": chance.choice(("GET", "GET", "POST"))}
    if inputs["method"] == "POST":
        inputs["body"] = chance.choice(("@triggerBody()", "x", {"$content-type": "text/plain", "$content": "!!"}))
    action: dict[str, Any] = {"type": "http", "inputs": inputs, "limit": {"timeout": "PT2S"}}
    if chance.random() < 0.3:
        action["retryPolicy"] = {"type": "fixed", "count": 2, "interval": "PT0.05S", "minimumInterval": "PT0S"}
    read = {
        "type": "compose",
        "inputs": "@" + chance.choice(("body('a')", "string(outputs('a'))", "length(string(body('a')))")),
    }
    made = _flow(f"answer-{name}", {"a": action, "b": read}, given(chance, 1000))
    return Case(**{**made.__dict__, "family": "answer"})


def bodies(chance: Random, size: int) -> Case:
    """Steps in Python that end in any way."""
    if chance.random() < 0.25:
        kind = chance.choice(hostile_bodies.THREADED)
        return Case("body", f"threaded-{kind}", workflow="Threaded", input={"kind": kind})
    kind = chance.choice(hostile_bodies.CONTAINED)
    return Case("body", kind, workflow="Contained", input={"kind": kind}, may_wait=True)


def requests(chance: Random, size: int) -> Case:
    """Requests to start a run that are none, or nearly."""
    head = '{"workflow":"Contained","input":'
    raw = chance.choice(
        (
            head + "[" * 50_000 + "]" * 50_000 + "}",
            head + '{"kind":"fine","a":' * 100 + "1" + "}" * 101,
            head + "1e999}",
            head + "NaN}",
            head + "9" * 6000 + "}",
            head + '{"kind":"fine","\\ud800":"\\udfff"}}',
            head + '{"kind":"fine"},"run_id":"\\ud800"}',
            head + '{"kind":"fine"},"run_id":"' + "r" * 100_000 + '"}',
            head + '{"kind":"fine"},"run_id":"../../a\\u0000"}',
            head + '{"kind":"fine"},"tags":{"handler":"x","\\ud800":"y"}}',
            head + '{"kind":"fine"},"tags":{' + ",".join(f'"t{n}":"x"' for n in range(5000)) + "}}",
            head + '{"kind":"fine"},"version":1e308}',
            head + '{"kind":"fine"},"parameters":{"a":1},"variables":{"loopIndex":2}}',
            head + '{"kind":"fine","kind":["nan"]}}',
            head + '{"kind":{"a":"fine"}}}',
            head + "[" + "[]," * 90_000 + "[]]}",
            head + "[" + "[]," * 200_000 + "[]]}",
            head + '"' + "\\u0000" * 100_000 + '"}',
            head + '"\xff\xfe"}',
            '{"workflow":"' + "w" * 500_000 + '"}',
            '{"workflow":null}',
            "null",
            "",
            "\x1f\x8b\x08",
            "[" * 900_000,
        )
    )
    return Case("request", "request", raw=raw, workflow="Contained")


MAKERS: list[tuple[int, Callable[[Random, int], Case]]] = [
    (16, expressions),
    (8, repeated),
    (8, xpaths),
    (7, loops),
    (5, schemas),
    (4, literals),
    (3, raw_documents),
    (7, tables),
    (3, secure),
    (5, growing),
    (2, ending),
    (4, waiting),
    (4, responses),
    (2, children),
    (1, itself),
    (6, activities),
    (3, actors),
    (18, answers),
    (16, bodies),
    (6, requests),
]
"""Kinds of cases, and how often each is made."""


def make_case(seed: int, number: int, size: int) -> Case:
    """Make the case of a number; its input has at most about some bytes."""
    chance = Random(f"{seed}:{number}")
    maker = chance.choices([each for _, each in MAKERS], [weight for weight, _ in MAKERS])[0]
    return maker(chance, size)


def blocking_cases() -> list[Case]:
    """One of each kind that holds the event loop."""
    return [
        Case("blocking", kind, workflow="Blocking", input={"kind": kind}, step=hostile_bodies.STEP_OF_BLOCKING)
        for kind in hostile_bodies.BLOCKING
    ]
