"""Calls every function with nasty inputs that grow, and compares the CPU time with the units that were counted.

    python tests/hostile/costs_sweep.py [scale] [every]

A function that takes much longer than it counts could hold an action up beyond its budget. The long form is a scale of
8 or more, and every case; beside the worst ones, `every` 40 takes each fortieth. Prints what is wrong, then `fine` if
nothing is.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any

from loom.expressions import ExpressionError, compile_template
from loom.expressions.environment import ContextEnvironment
from loom.expressions.functions import all_names
from loom.expressions.meter import Meter, metered_by

NANOSECONDS_OF_A_UNIT = 400
"""A unit is meant to be about ten; a busy machine and small cases are forgiven."""
FREE_SECONDS = 0.25


def texts(n: int) -> dict[str, str]:
    """Texts of about n characters."""
    return {
        "a": "a" * n,
        "ab": "ab" * (n // 2),
        "é": "é" * n,
        "😀": "😀" * n,
        "1": "1" * n,
        "spaces": " " * n + "x",
        "%41": "%41" * (n // 3),
        "%E9": "%E9a" * (n // 4),
        "&lt;": "&lt;" * (n // 4),
        "_x0041_": "_x0041_" * (n // 7),
        "1,": "1," * (n // 2),
        "[": "[" * n,
        "[[],": "[" + "[]," * (n // 3) + "[]]",
        "\\u": '["' + "\\ud800" * (n // 6) + '"]',
        "{": "{" + ",".join(f'"k{i}":{i}' for i in range(n // 10)) + "}",
        "1e": "1e" + "9" * n,
        "0.": "0." + "1" * n,
        "uri": "http://x/" + "/a" * (n // 5) + "/.." * (n // 5) + "?" + "é" * (n // 10),
        "user": "http://" + "@" * n,
        "data": "data:;base64," + "QUFB " * (n // 5),
        "data;": "data:" + ";a=b" * (n // 4) + ",x",
        "base64": "QUFB" * (n // 4),
        "base64 ": "Q Q = = " * (n // 8),
        "xml": "<r>" + "<a b='1'>x</a>" * (n // 14) + "</r>",
        "xmlns": "<r>" + "".join(f"<a xmlns:p{i}='u'/>" for i in range(n // 20)) + "</r>",
        "date": "2024-01-01T00:00:00" + "0" * n,
        "date.": "2024-01-01T00:00:00." + "0" * n,
        "format": "yyyy-MM-dd'T'" * (n // 13),
        "fff": "f" * n,
        "###": "#,0." * (n // 4),
        "quotes": "'" * n,
        "N9": "N" + "9" * min(n, 1000),
        "{0}": "{0}" * (n // 3),
        ";": ";" * n,
        "%%": "%%d" * (n // 3),
    }


def arrays(n: int) -> dict[str, Any]:
    """Arrays and objects of about n parts."""
    same = ["x" * 500] * (n // 50)
    return {
        "integers": list(range(n)),
        "reversed": list(range(n, 0, -1)),
        "strings": [f"s{i}" for i in range(n)],
        "é strings": [f"é{i}" for i in range(n // 4)],
        "mixed": [i if i % 2 else i + 0.5 for i in range(n // 4)],
        "lists": [[i] for i in range(n // 2)],
        "objects": [{"a": i, "b": str(i)} for i in range(n // 4)],
        "same": same,
        "nested": [same, same, [same, same]],
        "object": {f"k{i}": i for i in range(n)},
        "CASES": {f"K{'é' if i % 2 else ''}{i}": i for i in range(n)},
        "envelope": {"$content-type": "application/xml", "$content": "PHIvPg=="},
        "as xml": {"r": {**{f"@xmlns:p{i}": "u" for i in range(n // 20)}, "a": [{"b": i} for i in range(n // 20)]}},
    }


SMALL: tuple[Any, ...] = ("a", "b" + "a" * 90, 1, 3, "k", "yyyy", {"a": 1}, [1], "en-US", "//a//b", "N2", -2, None)


def cases(n: int) -> Iterator[tuple[str, list[Any]]]:
    """Each function with a large argument in each place, beside small ones."""
    large = {**texts(n), **arrays(n)}
    for name in all_names():
        for count in (1, 2, 3):
            for place in range(count):
                for kind, value in large.items():
                    for small in SMALL[: 13 if count == 2 else 4] if count > 1 else (None,):
                        arguments = [small] * count
                        arguments[place] = value
                        yield f"{name}/{count} {kind} at {place} beside {small!r:.20}", [name, *arguments]
            if count > 1:
                for kind, value in large.items():
                    yield f"{name}/{count} {kind} everywhere", [name, *[value] * count]


def worst(n: int) -> Iterator[tuple[str, list[Any]]]:
    """Cases that are known to be bad without care."""
    twin = "a" * (n // 2) + "b" + "a" * (n // 2)
    for name in ("lastIndexOf", "indexOf", "contains", "split", "endsWith", "startsWith"):
        yield f"{name} of a part that nearly fits", [name, "a" * n, "ab" + "a" * (n // 2)]
        yield f"{name} of another part that nearly fits", [name, "a" * n, twin]
    yield "nthIndexOf of a part that nearly fits", ["nthIndexOf", "a" * n, "ab" + "a" * (n // 2), -1]
    yield "replace of a part that nearly fits", ["replace", "a" * n, "a" * (n // 2) + "b", ""]
    text, value = texts(n), arrays(n)
    yield "uriPath of dots", ["uriPath", text["uri"]]
    for kind in ("xml", "xmlns"):
        yield f"xml of {kind}", ["xml", text[kind]]
    yield "xml of an object", ["xml", value["as xml"]]
    yield "sort", ["sort", value["mixed"]]
    yield "equals of shared parts", ["equals", [value["nested"]] * 50, [[list(value["same"])] * 3] * 50]
    yield "formatDateTime", ["formatDateTime", "2024-01-01", text["format"]]
    yield "base64ToString of blanks", ["base64ToString", text["base64 "]]


def measured(name: str, arguments: list[Any]) -> tuple[float, int]:
    """The seconds of a call, and its units."""
    places = ", ".join(f"variables('v{index}')" for index in range(len(arguments)))
    evaluate = compile_template(f"@{name}({places})").evaluate
    variables = {f"v{index}": value for index, value in enumerate(arguments)}
    env = ContextEnvironment({"variables": variables, "utcNow": "2024-01-01T00:00:00Z"})
    meter = Meter()
    began = time.process_time()
    with metered_by(meter), suppress(ExpressionError):
        evaluate(env)
    return time.process_time() - began, meter.units


def main() -> None:
    """Measure all cases."""
    scale = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    every = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    bad = 0
    for case, (name, *arguments) in chain(worst(200_000 * scale), islice(cases(20_000 * scale), 0, None, every)):
        seconds, units = measured(name, arguments)
        if seconds > FREE_SECONDS + units * NANOSECONDS_OF_A_UNIT / 1e9:
            bad += 1
            print(f"{case}: {seconds:.2f} s for {units:,} units", flush=True)  # noqa: T201
    print("fine" if not bad else f"{bad} cases cost more than they count")  # noqa: T201


if __name__ == "__main__":
    main()
