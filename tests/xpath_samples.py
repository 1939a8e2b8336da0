"""Random paths and documents for tests of XPath: small ones to compare, nasty ones to bound. Used by tests."""

from __future__ import annotations

import random

_NAMES = ("a", "b", "c", "*", "node()", "text()")
_AXES = (
    "child::", "descendant::", "descendant-or-self::", "parent::", "ancestor::", "ancestor-or-self::", "following::",
    "preceding::", "following-sibling::", "preceding-sibling::", "self::", "attribute::", "", "", "", "@",
)  # fmt: skip


def random_path(rng: random.Random, depth: int = 3) -> str:
    """A location path."""
    head = rng.choice(("/", "//", "", "./", ".//"))
    count = rng.randint(1, 3)
    steps = [_step(rng, depth) for _ in range(count)]
    text = head + steps[0]
    for step in steps[1:]:
        text += rng.choice(("/", "//")) + step
    return text


def _step(rng: random.Random, depth: int) -> str:
    axis = rng.choice(_AXES)
    name = rng.choice(_NAMES[:4] if axis in ("@", "attribute::") else _NAMES)
    predicates = ""
    while depth > 0 and rng.random() < 0.35:
        predicates += f"[{random_expression(rng, depth - 1)}]"
    return f"{axis}{name}{predicates}"


def random_expression(rng: random.Random, depth: int = 3) -> str:
    """Any expression."""
    if depth <= 0:
        return rng.choice(("1", "2", "'x'", "position()", "last()", ".", "@a", "a", "true()", "'2'", "-1.5", "''"))
    inner = [random_expression(rng, depth - 1) for _ in range(3)]
    path = random_path(rng, depth - 1)
    return rng.choice(
        (
            path,
            f"count({path})",
            f"{inner[0]} = {inner[1]}",
            f"{inner[0]} != {inner[1]}",
            f"{inner[0]} < {inner[1]}",
            f"{inner[0]} >= {inner[1]}",
            f"{inner[0]} and {inner[1]}",
            f"{inner[0]} or {inner[1]}",
            f"number({inner[0]}) + number({inner[1]})",
            f"-({inner[0]})",
            f"({inner[0]}) mod 2",
            f"({inner[0]}) * 2",
            f"6 div ({inner[0]})",
            f"{path} | {random_path(rng, depth - 1)}",
            f"({path})[{inner[0]}]",
            f"not({inner[0]})",
            f"string({inner[0]})",
            f"concat({inner[0]}, {inner[1]})",
            f"contains({inner[0]}, {inner[1]})",
            f"starts-with({inner[0]}, {inner[1]})",
            f"substring({inner[0]}, {inner[1]}, {inner[2]})",
            f"substring-before({inner[0]}, 'x')",
            f"substring-after({inner[0]}, 'x')",
            f"translate({inner[0]}, 'xy', 'z')",
            f"normalize-space({inner[0]})",
            f"string-length({inner[0]})",
            f"sum({path})",
            f"round({inner[0]})",
            f"floor({inner[0]})",
            f"ceiling({inner[0]})",
            f"name({path})",
            f"local-name({path})",
        )
    )


def random_document(rng: random.Random) -> str:
    """A small document with everything in it."""

    def element(depth: int) -> str:
        name = rng.choice("abc")
        attributes = "".join(f' {key}="{rng.choice(("1", "2", "x", ""))}"' for key in "abc" if rng.random() < 0.3)
        children = []
        for _ in range(rng.randint(0, 3) if depth else 0):
            last_is_text = bool(children) and not children[-1].startswith("<")
            kinds = ("element", "element", "comment", "instruction") if last_is_text else ("element", "element", "text")
            kind = rng.choice(kinds)
            if kind == "element":
                children.append(element(depth - 1))
            elif kind == "text":
                children.append(rng.choice(("1", "2", "x", "xyx", " y x ", "3.5")))
            else:
                children.append("<!--x-->" if kind == "comment" else "<?p x?>")
        return f"<{name}{attributes}>{''.join(children)}</{name}>"

    return element(4)


def nasty_documents(size: int) -> dict[str, str]:
    """Documents of about `size` nodes, of shapes that hurt."""
    deep = 90
    chain = "<a b='1'>" * deep + "x" + "</a>" * deep
    return {
        "wide": "<r>" + "<a><b/></a>" * (size // 2) + "</r>",
        "deep": "<r>" + chain * (size // deep) + "</r>",
        "attributes": "<r " + " ".join(f"a{number}='{number}'" for number in range(size)) + "><a/></r>",
        "orders": "<r>" + "<order><line>1</line><line>2</line></order>" * (size // 3) + "</r>",
        "texts": "<r>" + f"<a>{'x' * 200}<b/>{'y' * 200}</a>" * (size // 4) + "</r>",
        "namespaces": "<r>" + "".join(f"<n{n}:a xmlns:n{n}='u{n}'/>" for n in range(size)) + "</r>",
    }


NASTY_PATHS = (
    "count(//order//line)",
    "//*//*//*",
    "//*[.//*[.//*]]",
    "//*[//*[//*]]",
    "//* | //* | //*//*",
    "//* = //*//*",
    "//@* = //@*",
    "//*[. = //*]",
    "count(//*/following::*/preceding::*)",
    "//*/ancestor::*/descendant::*/ancestor::*",
    "//*[contains(string(/), 'xxxxxxxxxy')]",
    "string-length(concat(string(/), string(/), string(/), string(/), string(/)))",
    "//*[string-length(translate(string(/), 'x', 'y')) > 1]",
    "//*/namespace::*",
    "count(//*/preceding-sibling::*[last()]/following-sibling::*)",
    "(//*)[position() = last()]/../../..//*",
    "sum(//*[number(.) < count(//*)])",
    "//*[preceding::*[following::*]]",
    "//node()[self::*/..//node()/..//node()]",
    "//*[lang('en')] | id(//*)",
)
