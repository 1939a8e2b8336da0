"""What the world would have to answer for a published definition to get on: guessed from what its expressions read.

`body('Get')?['value']` read by a Foreach makes the answer to `Get` an object whose `value` is an array; what the loop
reads of `items('Loop')` makes its elements. A comparison with a literal gives that literal, a schema gives its types.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from loom.expressions.parser import Expression, FunctionCall, Interpolation, Literal, Single, parse_template

_TIME = "2023-11-01T10:30:00Z"
_BASE64 = "e30="
_ENCODED = ("base64tobinary", "base64tostring", "decodebase64")
_NUMBERS = ("add", "sub", "mul", "div", "mod", "int", "float", "greater", "less", "greaterorequals", "lessorequals")
_TIMES = ("formatdatetime", "ticks", "adddays", "addhours", "addminutes", "addseconds", "converttimezone")
_TEXTS = ("split", "tolower", "toupper", "trim", "substring", "replace", "startswith", "endswith", "indexof")
_SAME = ("json", "coalesce", "array", "string", "union", "sort", "reverse", "take", "skip", "if")
_UNSET = object()
_DEEPEST = 20
"""A definition may send its answers back to where they came from."""


class Shape:
    """What is known of one value."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.children: dict[str, Shape] = {}
        self.element: Shape | None = None
        self.value: Any = _UNSET
        self.is_text = False
        """It holds JSON in a text."""

    def child(self, key: str) -> Shape:
        known = next((name for name in self.children if name.lower() == key.lower()), key)
        return self.children.setdefault(known, Shape(key))

    def each(self) -> Shape:
        if self.element is None:
            self.element = Shape(self.name.rstrip("s"))
        return self.element

    def suppose(self, value: Any) -> None:
        """The first guess counts."""
        if self.value is _UNSET and not self.children and self.element is None:
            self.value = value

    def learn(self, schema: Any) -> None:
        """Take over what a JSON Schema says."""
        if not isinstance(schema, dict):
            return
        kind = schema.get("type")
        kind = next((one for one in kind if one != "null"), None) if isinstance(kind, list) else kind
        for key, inner in schema.get("properties", {}).items() if isinstance(schema.get("properties"), dict) else ():
            self.child(key[1:] if key.startswith("@@") else key).learn(inner)
        if kind == "array":
            self.each().learn(schema.get("items"))
        elif kind in ("integer", "number"):
            self.suppose(1)
        elif kind == "boolean":
            self.suppose(True)
        elif kind == "object" and not self.children:
            self.value = {} if self.value is _UNSET else self.value
        elif kind == "string":
            guess = _by_name(self.name)
            self.suppose(guess if isinstance(guess, str) else f"some {self.name}")

    def example(self, depth: int = 0) -> Any:
        """A value of this shape."""
        if depth > _DEEPEST:
            return None
        if self.element is not None:
            found: Any = [self.element.example(depth + 1)]
        elif self.children:
            found = {key: shape.example(depth + 1) for key, shape in self.children.items()}
        else:
            found = self.value if self.value is not _UNSET else _by_name(self.name)
        return json.dumps(found) if self.is_text else found


def _by_name(name: str) -> Any:
    lower = name.lower()
    if "next" in lower:
        return None
    if "zone" in lower:
        return "UTC"
    if any(part in lower for part in ("url", "uri", "endpoint")):
        return f"https://{name.lower()}.example"
    if any(part in lower for part in ("time", "date", "created", "expir")):
        return _TIME
    if any(part in lower for part in ("count", "total", "offset", "size", "confidence", "score")):
        return 1
    return f"some {name}"


class Shapes:
    """What is known of everything that a definition reads."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self.trigger = Shape("trigger")
        self.parameters: dict[str, Shape] = {}
        self._bodies: dict[str, Shape] = {}
        self._actions = {name.lower(): action for name, action in actions_in(definition)}
        self._variables = _assigned(self._actions.values())
        self._resolving: set[str] = set()
        for trigger in (definition.get("triggers") or {}).values():
            inputs = trigger.get("inputs")
            self.trigger.learn(inputs.get("schema") if isinstance(inputs, dict) else None)
        # What is learnt of one thing may tell about another that was read before it.
        for _ in range(2):
            self._visit_all(definition.get("actions") or {}, None)

    def body(self, action: str) -> Any:
        """What an action of the world's answers, as a body."""
        return self._bodies[action.lower()].example() if action.lower() in self._bodies else {}

    def trigger_body(self) -> Any:
        return self.trigger.example() if self.trigger.children or self.trigger.element else {}

    # -- the definition -----------------------------------------------------------------------------------------------

    def _visit_all(self, actions: dict[str, Any], item: Shape | None) -> None:
        for action in actions.values():
            self._visit(action, item)

    def _visit(self, action: dict[str, Any], item: Shape | None) -> None:
        kind = str(action.get("type", "")).lower()
        inputs = action["inputs"] if isinstance(action.get("inputs"), dict) else {}
        here = self._element(inputs.get("from"), item) if kind in ("select", "query", "table") else item
        inside = self._element(action.get("foreach"), item) if kind == "foreach" else item
        self._learn(kind, inputs, here)
        if kind in ("if", "until"):
            self._condition(action.get("expression"), item)
        elif kind == "switch":
            self._cases(action, item)
        for key, value in action.items():
            if key not in ("actions", "else", "cases", "default", "schema"):
                for text in texts_in(value):
                    self._template(text, here)
        for block in blocks_in(action):
            self._visit_all(block, inside)

    def _learn(self, kind: str, inputs: dict[str, Any], item: Shape | None) -> None:
        """What the kind of an action says about what it works on."""
        if kind == "table" and item is not None and "columns" not in inputs:
            item.child("column")
        elif kind == "wait" and isinstance(inputs.get("interval"), dict):
            count = self._template(inputs["interval"].get("count"), item)
            if count is not None:
                count.suppose(1)
        elif kind == "parsejson":
            source = self._template(inputs.get("content"), item)
            if source is not None:
                source.learn(inputs.get("schema"))

    def _element(self, text: Any, item: Shape | None) -> Shape:
        found = self._template(text, item)
        return found.each() if found is not None else Shape("item")

    def _cases(self, action: dict[str, Any], item: Shape | None) -> None:
        found = self._template(action.get("expression"), item)
        cases = [case.get("case") for case in (action.get("cases") or {}).values()]
        if found is not None and cases:
            found.suppose(cases[0])

    def _condition(self, data: Any, item: Shape | None) -> None:
        """A tree of calls: what is compared with a literal has that value."""
        if isinstance(data, dict):
            for name, given in data.items():
                parts = given if isinstance(given, list) else [given]
                shapes = [self._template(part, item) for part in parts]
                if not isinstance(given, list) or not any(isinstance(part, dict) for part in parts):
                    self._hint(name.lower(), shapes, [part if not _is_template(part) else _UNSET for part in parts])
                for part in parts:
                    self._condition(part, item)

    # -- expressions --------------------------------------------------------------------------------------------------

    def _template(self, text: Any, item: Shape | None) -> Shape | None:
        """The shape that a template is made of, if it is one expression; learn from it in any case."""
        if not isinstance(text, str):
            return None
        parsed = parse_template(text, lenient=True)
        if isinstance(parsed, Single):
            return self._expression(parsed.expression, item)
        parts = parsed.parts if isinstance(parsed, Interpolation) else ()
        found = [self._expression(part, item) for part in parts if not isinstance(part, str)]
        return found[0] if len(parts) == 1 else None

    def _expression(self, expression: Expression, item: Shape | None) -> Shape | None:
        if isinstance(expression, Literal):
            return None
        name = expression.name.lower()
        shapes = [self._expression(argument, item) for argument in expression.arguments]
        literals = [one.value if isinstance(one, Literal) else _UNSET for one in expression.arguments]
        if name == "json" and shapes and shapes[0] is not None:
            shapes[0].is_text = True
        self._hint(name, shapes, literals)
        found, accesses = self._root(name, expression, shapes, item)
        for access in accesses:
            if isinstance(access.key, FunctionCall):
                self._expression(access.key, item)
            if found is None or not isinstance(access.key, Literal):
                found = found.each() if found is not None else None
            elif isinstance(access.key.value, str):
                for part in access.key.value.split("/"):
                    found = found.child(part)
            else:
                found = found.each()
        return found

    def _root(self, name: str, call: FunctionCall, shapes: list[Shape | None], item: Shape | None) -> Any:
        """The shape that a call gives, and the accesses that are left."""
        argument = call.arguments[0].value if call.arguments and isinstance(call.arguments[0], Literal) else None
        accesses = call.accesses
        if name in ("triggerbody", "triggeroutputs"):
            return _inside_body(self.trigger, accesses, name == "triggeroutputs")
        if name in ("body", "outputs", "actionbody", "actionoutputs") and isinstance(argument, str):
            return self._of_action(argument, accesses, name.endswith("outputs"))
        if name == "item":
            return item, accesses
        if isinstance(argument, str) and name in ("items", "parameters", "variables"):
            return self._named(name, argument), accesses
        known = [shape for shape in shapes if shape is not None]
        if name in ("first", "last"):
            return (known[0].each() if known else None), accesses
        return (known[0] if name in _SAME and known else None), accesses

    def _named(self, function: str, name: str) -> Shape | None:
        if function == "parameters":
            return self.parameters.setdefault(name, Shape(name))
        if function == "variables":
            return self._of_variable(name.lower())
        loop = self._actions.get(name.lower(), {})
        found: Shape | None = self._once(f"items {name}", lambda: self._element(loop.get("foreach"), None))
        return found

    def _of_action(self, name: str, accesses: Any, whole: bool) -> Any:
        key = name.lower()
        action = self._actions.get(key, {})
        kind, inputs = str(action.get("type", "")).lower(), action.get("inputs")
        if kind == "compose":
            return self._once(f"action {key}", lambda: self._template(inputs, None)), accesses
        source = (
            inputs.get({"parsejson": "content", "query": "from"}.get(kind, "")) if isinstance(inputs, dict) else None
        )
        if source is not None:
            found = self._once(f"action {key}", lambda: self._template(source, None))
            return _inside_body(found, accesses, whole)
        return _inside_body(self._bodies.setdefault(key, Shape(name)), accesses, whole)

    def _of_variable(self, key: str) -> Shape | None:
        for how, text in self._variables.get(key, ()):
            found = self._once(f"variable {key}", lambda text=text: self._template(text, None))  # type: ignore[misc]
            if found is not None:
                if how == "appended":
                    return None
                return found
        return None

    def _once(self, key: str, find: Any) -> Any:
        """A definition may read what it has set from itself."""
        if key in self._resolving:
            return None
        self._resolving.add(key)
        try:
            return find()
        finally:
            self._resolving.discard(key)

    def _hint(self, name: str, shapes: list[Shape | None], literals: list[Any]) -> None:
        for position, shape in enumerate(shapes):
            if shape is None:
                continue
            others = [value for place, value in enumerate(literals) if place != position and value is not _UNSET]
            if name == "equals" and others and others[0] is not None and others[0] != "":
                shape.suppose(others[0])
            elif name in _NUMBERS:
                number = others[0] if others and isinstance(others[0], int) else 1
                shape.suppose(number + 1 if name.startswith("greater") else number)
            elif name in _ENCODED and not shape.children:
                shape.value = _BASE64
            elif name in _TIMES and position == 0:
                shape.suppose(_TIME)
            elif name in _TEXTS and position == 0:
                shape.suppose(others[0] if others and isinstance(others[0], str) and others[0] else "some text")
            elif name in ("join", "first", "last") and position == 0:
                shape.each()


def _inside_body(found: Shape | None, accesses: Any, whole: bool) -> Any:
    """Of outputs only the body is guessed."""
    if not whole or found is None:
        return found, accesses
    first = accesses[0].key.value if accesses and isinstance(accesses[0].key, Literal) else None
    if first == "body":
        return found, accesses[1:]
    if isinstance(first, str) and first.startswith("body/"):
        inside = found
        for part in first.split("/")[1:]:
            inside = inside.child(part)
        return inside, accesses[1:]
    return None, ()


def _is_template(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("@") and not value.startswith("@@")


def _assigned(actions: Any) -> dict[str, list[tuple[str, Any]]]:
    """What variables are given, by their names."""
    found: dict[str, list[tuple[str, Any]]] = {}
    for action in actions:
        kind, inputs = str(action.get("type", "")).lower(), action.get("inputs")
        if not isinstance(inputs, dict):
            continue
        entries = inputs.get("variables", []) if kind == "initializevariable" else [inputs]
        for entry in entries:
            if "variable" in kind and isinstance(entry.get("name"), str) and isinstance(entry.get("value"), str):
                how = "appended" if kind.startswith("append") else "set"
                found.setdefault(entry["name"].lower(), []).append((how, entry["value"]))
    return found


def texts_in(value: Any) -> Iterator[str]:
    """All texts in a value, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)


def blocks_in(action: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The maps of actions in an action."""
    branches = [action, action.get("else"), action.get("default"), *(action.get("cases") or {}).values()]
    for branch in branches:
        if isinstance(branch, dict) and isinstance(branch.get("actions"), dict):
            yield branch["actions"]


def actions_in(container: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """All actions with their names."""
    for block in blocks_in(container):
        for name, action in block.items():
            yield name, action
            yield from actions_in(action)
