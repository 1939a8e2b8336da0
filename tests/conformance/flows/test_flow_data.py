"""Actions that work on data: Compose, ParseJson, Select, Query, Join, Table, inline time expressions."""

from __future__ import annotations

from typing import Any

import pytest
from flow_player import azure, compose, play


def one(type_: str, inputs: Any, body: Any = None, **more: Any) -> Any:
    """The outputs of one action, or the code of its error."""
    played = play(azure({"A": {"type": type_, "inputs": inputs, **more}}), body)
    action = played.result.actions["A"]
    if action.status == "Failed":
        assert action.outputs is None
        return action.code
    return action.outputs


@pytest.mark.parametrize(
    ("inputs", "value"),
    [
        ("text", "text"),
        ("@add(1, 2)", 3),
        ("@{add(1, 2)}", "3"),
        ({"a": ["@true", {"@{concat('k', 'ey')}": "@null"}]}, {"a": [True, {"key": None}]}),
        ({"@@odata.type": "@@x"}, {"@odata.type": "@x"}),
        (None, None),
        ([], []),
        ("[parameters('x')]", "[parameters('x')]"),
        ("[concat('@{1}', 'a')]", "[concat('@{1}', 'a')]"),
        ("[[escaped('@{1}')]", "[[escaped('@{1}')]"),
        ("[]", "[]"),
        ("[@{add(1, 1)}]", "[2]"),
    ],
)
def test_compose_gives_the_value_itself(inputs: Any, value: Any) -> None:
    assert one("Compose", inputs) == value


def test_body_of_a_compose_is_the_whole_value() -> None:
    played = play(
        azure({"A": compose({"x": 1}), "B": compose(["@body('A')", "@body('A')?['x']", "@outputs('A')"], "A")})
    )
    assert played.outputs("B") == [{"x": 1}, 1, {"x": 1}]


# -- ParseJson ---------------------------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"n": {"type": "integer"}, "@@odata.type": {"type": "string"}},
    "required": ["n"],
}


@pytest.mark.parametrize(
    ("content", "schema", "result"),
    [
        ('{"n": 1}', SCHEMA, {"body": {"n": 1}}),
        ({"n": 1}, SCHEMA, {"body": {"n": 1}}),
        ("[1, 2]", {"type": "array"}, {"body": [1, 2]}),
        ("3", {}, {"body": 3}),
        ('{"n": 1.5}', SCHEMA, "ValidationFailed"),
        ('{"x": 1}', SCHEMA, "ValidationFailed"),
        ('{"n": 1, "@odata.type": 5}', SCHEMA, "ValidationFailed"),
        ('{"n": 1, "@odata.type": "t"}', SCHEMA, {"body": {"n": 1, "@odata.type": "t"}}),
        ("no json", SCHEMA, "InvalidContent"),
        (None, SCHEMA, "InvalidTemplate"),
        ('{"n": null}', {"type": "object", "properties": {"n": {"type": ["integer", "null"]}}}, {"body": {"n": None}}),
    ],
)
def test_parse_json(content: Any, schema: Any, result: Any) -> None:
    assert one("ParseJson", {"content": "@triggerBody()", "schema": schema}, content) == result


def test_parse_json_without_a_schema() -> None:
    assert one("ParseJson", {"content": "@triggerBody()"}, '{"a": 1}') == {"body": {"a": 1}}


def test_a_violation_says_where() -> None:
    parse = {"type": "ParseJson", "inputs": {"content": "@triggerBody()", "schema": SCHEMA}}
    assert "n" in play(azure({"A": parse}), {"n": "x"}).error("A")


# -- Select, Query, Join -----------------------------------------------------------------------------------------------

PEOPLE = [{"name": "Ada", "age": 36}, {"name": "Bob", "age": 17}]


@pytest.mark.parametrize(
    ("select", "result"),
    [
        ("@item()?['name']", ["Ada", "Bob"]),
        (
            {"who": "@item()?['name']", "old": "@greater(item()?['age'], 18)"},
            [
                {"who": "Ada", "old": True},
                {"who": "Bob", "old": False},
            ],
        ),
        ("same", ["same", "same"]),
        (["@item()?['age']"], [[36], [17]]),
    ],
)
def test_select(select: Any, result: Any) -> None:
    assert one("Select", {"from": "@triggerBody()", "select": select}, PEOPLE) == {"body": result}


def test_query() -> None:
    query = {"from": "@triggerBody()", "where": "@greater(item()?['age'], 18)"}
    assert one("Query", query, PEOPLE) == {"body": [PEOPLE[0]]}
    assert one("Query", query, []) == {"body": []}


def test_a_query_must_ask_for_a_boolean() -> None:
    assert one("Query", {"from": "@triggerBody()", "where": "@item()?['age']"}, PEOPLE) != {"body": PEOPLE}
    assert play(azure({"A": {"type": "Query", "inputs": {"from": [1], "where": "@item()"}}})).status == "Failed"


@pytest.mark.parametrize(
    ("items", "separator", "text"),
    [
        (["a", "b"], ", ", "a, b"),
        ([1, True, None, {"x": 1.0}], "|", '1|True||{"x":1.0}'),
        ([], ",", ""),
        (["a"], "-", "a"),
    ],
)
def test_join(items: Any, separator: str, text: str) -> None:
    assert one("Join", {"from": "@triggerBody()", "joinWith": separator}, items) == {"body": text}


@pytest.mark.parametrize("kind", ["Select", "Query", "Join", "Table"])
@pytest.mark.parametrize("value", [None, "text", {"a": 1}])
def test_they_need_an_array(kind: str, value: Any) -> None:
    more = {"select": "x", "where": "@true", "joinWith": ",", "format": "CSV"}
    assert one(kind, {"from": "@triggerBody()", **more}, value) == "ExpressionEvaluationFailed"


# -- Table -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "text"),
    [
        ({"format": "CSV"}, "name,age\r\nAda,36\r\nBob,17\r\n"),
        (
            {"format": "csv", "columns": [{"header": "Who", "value": "@toUpper(item()?['name'])"}]},
            "Who\r\nADA\r\nBOB\r\n",
        ),
        (
            {"format": "HTML"},
            "<table><thead><tr><th>name</th><th>age</th></tr></thead><tbody><tr><td>Ada</td><td>36</td></tr>"
            "<tr><td>Bob</td><td>17</td></tr></tbody></table>",
        ),
    ],
)
def test_table(inputs: dict[str, Any], text: str) -> None:
    found = one("Table", {"from": "@triggerBody()", **inputs}, PEOPLE)
    assert found["body"].rstrip("\r\n") == text.rstrip("\r\n")


def test_a_tables_cells_are_escaped() -> None:
    rows = [{"a": 'x,"y"', "b": "1\n2"}]
    assert one("Table", {"from": "@triggerBody()", "format": "CSV"}, rows)["body"].startswith('a,b\r\n"x,""y""","1\n2"')
    html = one("Table", {"from": "@triggerBody()", "format": "HTML"}, [{"a": "<b>&"}])["body"]
    assert "<td>&lt;b&gt;&amp;</td>" in html


def test_a_tables_columns_are_all_that_occur() -> None:
    found = one("Table", {"from": "@triggerBody()", "format": "CSV"}, [{"a": 1}, {"b": 2, "a": None}])
    assert found["body"].rstrip() == "a,b\r\n1,\r\n,2"


def test_a_table_of_another_format() -> None:
    assert one("Table", {"from": [], "format": "XML"}) == "InvalidTemplate"


# -- inline time expressions -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "inputs", "text"),
    [
        (
            "AddToTime",
            {"baseTime": "2024-01-31T00:00:00Z", "interval": 1, "timeUnit": "Month"},
            "2024-02-29T00:00:00.0000000Z",
        ),
        (
            "SubtractFromTime",
            {"baseTime": "2024-01-01T00:00:00Z", "interval": 1, "timeUnit": "Day"},
            "2023-12-31T00:00:00.0000000Z",
        ),
        ("CurrentTime", {}, "2023-11-14T22:13:20.0000000Z"),
        ("GetFutureTime", {"interval": 2, "timeUnit": "Hour"}, "2023-11-15T00:13:20.0000000Z"),
        ("GetPastTime", {"interval": "@add(1, 0)", "timeUnit": "Week"}, "2023-11-07T22:13:20.0000000Z"),
        (
            "ConvertTimeZone",
            {
                "baseTime": "2024-07-01T12:00:00Z",
                "sourceTimeZone": "UTC",
                "destinationTimeZone": "W. Europe Standard Time",
                "formatString": "g",
            },
            "7/1/2024 2:00 PM",
        ),
    ],
)
def test_inline_times(kind: str, inputs: dict[str, Any], text: str) -> None:
    assert one("Expression", inputs, kind=kind) == {"body": text}


def test_an_inline_time_that_fails() -> None:
    inputs = {"baseTime": "never", "interval": 1, "timeUnit": "Day"}
    assert one("Expression", inputs, kind="AddToTime") == "InvalidTemplate"


def test_large_results_are_refused_rather_than_made() -> None:
    """A flow is data and may come from anybody: text that doubles itself ends."""
    double = {"type": "SetVariable", "inputs": {"name": "s", "value": "@concat(variables('s'), variables('s'))"}}
    loop = {"type": "until", "condition": "false", "actions": {"d": double}, "limit": {"count": 60}}
    played = play({"actions": {"l": loop}}, variables={"s": "x" * 1024})
    assert played.statuses["l"] == "Failed"
    assert played.result.actions["d"].code == "InvalidTemplate"
