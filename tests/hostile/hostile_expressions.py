"""Random expressions of every function with nasty arguments, and inputs that they read. All follows from the chance."""

from __future__ import annotations

from random import Random
from typing import Any

from loom.expressions.functions import all_names
from loom.expressions.functions import find as function_of

TEXTS = (
    *("", " ", "a", "0", "-1", "1e999", "NaN", "9" * 400, "\x00", "é😀", "'", "''", "@{", "}", "%", "%zz", "]]>"),
    *("<a/>", "<a xmlns='u'><b/></a>", "{}", "[[[[", '{"a":1e999}', "null", "2024-02-30", "0001-01-01T00:00:00Z"),
    *("9999-12-31T23:59:59.9999999Z", "2024-01-01T00:00:00+14:00", "PT1e9S", "P99999999Y", "UTC", "Europe/Berlin"),
    *(
        "W. Europe Standard Time",
        "../../etc/passwd",
        "a/" * 300,
        "yyyy-MM-ddTHH:mm:ss.fffffffK",
        "f" * 40,
        "%d%%",
        "X99",
    ),
    *("N" + "9" * 30, "C2", "P", "#,##0.00;(#)", "data:,x", "data:;base64,QQ=", "http://[::1", "http://a@b@c:99999/?#"),
    *("//a//b", "count(//*)", "en-US", "tlh-Qaak", "Day", "Month", "k" * 5000),
)
HALF = "\ud800"
"""Half of a character, which most places refuse."""
NUMBERS = (0, 1, -1, 2, 3, 7, 100, 0.1, -0.5, 1e308, 2**31, -(2**31) - 1, 2**63 - 1, -(2**63), -(10**18), 99999)
PATHS = (
    *(
        "//a",
        "//a//b",
        "//*//*//*",
        "count(//order//line)",
        "//a|//b|//c",
        "//*[//*]",
        "//*[.=//*]",
        "//a[last()]/..//b",
    ),
    *("//*[count(.//*)>1]", "//*[position()=last()]", "string(//*)", "sum(//@n)", "//@*", "//text()", "/..", "id('a')"),
    *(
        "//a/ancestor::*",
        "//*/following::*",
        "//*/preceding::*/ancestor::*",
        "normalize-space(string(/))",
        "//a[b=//b]",
    ),
    *("translate(string(/),string(/),string(/))", "concat(string(/),string(/))", "//*[contains(string(/),string(.))]"),
    *(
        "//*[starts-with(.,string(//*))]",
        "((((//*))))",
        "-" * 400 + "1",
        "//a[1][1][1][1]",
        "substring(/,1,1e99)",
        "1 div 0",
    ),
    *("//namespace::*", "//processing-instruction()", "(" * 300 + "1" + ")" * 300, "/*" * 300, "[", "a:b", "$x", "f()"),
    *("//*[not(//*[not(//*)])]", "//a[.//b[.//c]]", "//*[//*[//*[//*]]]", "count(//*//*//*//*)", "//a=//b", "//a!=//a"),
)
PARTS = ("text", "array", "xml", "deep", "object", "number", "none", "words")

_NAMES = all_names()
_FUNCTIONS = [function_of(name) for name in _NAMES]
_PURE = [found for found in _FUNCTIONS if found is not None and not found.asks]
_ASKING = [found for found in _FUNCTIONS if found is not None and found.asks]


def quoted(text: str) -> str:
    """A text as a literal of the language."""
    return "'" + text.replace("'", "''") + "'"


def literal(chance: Random) -> str:
    """A nasty value, or a part of the input."""
    roll = chance.random()
    if roll < 0.3:
        return quoted(chance.choice(TEXTS) if chance.random() < 0.98 else HALF)
    if roll < 0.5:
        return f"{chance.choice(NUMBERS):.20g}" if chance.random() < 0.8 else chance.choice(("null", "true", "false"))
    if roll < 0.9:
        return f"triggerBody()?[{quoted(chance.choice(PARTS))}]"
    return f"range({chance.choice((0, 1, -5))}, {chance.choice((0, 1, 100, 2000, 50_000, 100_000))})"


def call(chance: Random, depth: int) -> str:
    """A call of any function, with calls in it."""
    found = chance.choice(_ASKING if chance.random() < 0.03 else _PURE)
    most = found.max_args if found.max_args is not None else found.min_args + chance.choice((0, 1, 2, 9))
    count = chance.randint(found.min_args, max(most, found.min_args))
    arguments = [expression(chance, depth - 1) for _ in range(count)]
    return f"{found.name}({', '.join(arguments)})"


def large(chance: Random) -> str:
    """A call that makes much out of little."""
    size = chance.choice((100, 2000, 20_000, 100_000))
    inner = chance.choice((f"range(1,{size})", "triggerBody()?['array']", "triggerBody()?['text']"))
    return chance.choice(
        (
            f"length(string(chunk({inner},1)))",
            f"replace(join({inner},','),',',triggerBody()?['text'])",
            f"join(split(string({inner}),''),'--')",
            f"union({inner},reverse({inner}))",
            f"intersection({inner},{inner})",
            f"sort(reverse({inner}))",
            f"base64(base64(base64(string({inner}))))",
            f"json(string({inner}))",
            f"xml(json(concat('{{\"r\":{{\"a\":',string({inner}),'}}}}')))",
            f"concat({','.join([f'string({inner})'] * chance.choice((2, 20, 100)))})",
            f"createArray({','.join([inner] * chance.choice((2, 20, 100)))})",
            f"equals(createArray({inner},{inner}),createArray({inner},{inner}))",
            f"uriComponent(uriComponent(string({inner})))",
            f"lastIndexOf(string({inner}),concat(string({inner}),'x'))",
            f"nthIndexOf(string({inner}),',',-{size})",
            f"formatNumber(1,string({inner}))",
            f"toUpper(toLower(concat(string({inner}),'ß')))",
            f"take(skip(sort({inner}),{size // 2}),{size})",
            f"setProperty(json('{{}}'),string({inner}),{inner})",
            f"contains({inner},last({inner}))",
            f"slice(string({inner}),-{size})",
        )
    )


def expression(chance: Random, depth: int) -> str:
    """An expression without its @."""
    roll = chance.random()
    if depth <= 0 or roll < 0.15:
        return literal(chance)
    if roll < 0.25:
        return large(chance)
    if roll < 0.3:
        return f"xpath(xml(triggerBody()?['xml']), {quoted(chance.choice(PATHS))})"
    return call(chance, depth)


def deep(depth: int) -> Any:
    """Lists and objects in each other."""
    made: Any = 1
    for number in range(depth):
        made = [made] if number % 2 else {"a": made}
    return made


def _xml(chance: Random, size: int) -> str:
    match chance.randrange(6):
        case 0:
            return "<r>" + "<a><b n='1'>x</b></a>" * (size // 20) + "</r>"
        case 1:
            depth = min(size // 7, 3000)
            return "<a>" * depth + "x" + "</a>" * depth
        case 2:
            return "<r>" + "".join(f"<a xmlns:p{n}='u{n}'/>" for n in range(size // 24)) + "</r>"
        case 3:
            rows = "".join(f"<order id='{n}'><line>{n}</line></order>" for n in range(size // 40))
            return f"<r>{rows}</r>"
        case 4:
            return "<r " + " ".join(f"a{n}='1'" for n in range(size // 10)) + "/>"
    return "<!DOCTYPE r [<!ENTITY a 'aaaaaaaaaa'>]><r>" + "&a;" * (size // 4) + "</r>"


def _text(chance: Random, size: int) -> str:
    part = chance.choice(("a", "ab", "é", "😀", "1,", "%41", "&lt;", "[", " ", "'", "\\u", "<a>", "{0}", "\x01"))
    return part * (size // len(part.encode("utf-8", "surrogatepass")) + 1)


def _array(chance: Random, size: int) -> list[Any]:
    match chance.randrange(6):
        case 0:
            return list(range(size // 8))
        case 1:
            return [f"s{n}" for n in range(size // 10)]
        case 2:
            return [{"a": n, "b": str(n)} for n in range(size // 24)]
        case 3:
            return [[n] for n in range(size // 10)]
        case 4:
            return [n if n % 2 else n + 0.5 for n in range(size // 9)]
    return ["x" * 500] * (size // 500)


def given(chance: Random, size: int) -> dict[str, Any]:
    """An input of about some bytes in all."""
    size = int(size ** chance.uniform(0.5, 1.0)) // 4
    return {
        "text": _text(chance, size),
        "array": _array(chance, size),
        "xml": _xml(chance, size),
        "deep": deep(chance.choice((3, 50, 200) if chance.random() < 0.1 else (3, 20, 58))),
        "object": {f"k{'É' if n % 2 else ''}{n}": n for n in range(size // 40)},
        "number": chance.choice(NUMBERS),
        "words": [chance.choice(TEXTS) for _ in range(5)],
        "none": None,
    }
