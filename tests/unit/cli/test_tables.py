from __future__ import annotations

from loom.cli.output import table_lines


def lines(columns: list[str], rows: list[list[str]], width: int | None = None) -> list[str]:
    head, below = table_lines(columns, rows, width)
    return [*head, *below]


def test_columns_are_as_wide_as_they_must_be() -> None:
    assert lines(["run", "status"], [["a", "running (idle)"], ["order-17", ""]]) == [
        "run        status        ",
        "─────────────────────────",
        "a          running (idle)",
        "order-17                 ",
    ]


def test_a_table_without_rows_has_its_head() -> None:
    assert lines(["run", "status"], []) == ["run   status", "────────────"]


def test_signs_that_take_two_places_or_none_are_counted_so() -> None:
    assert lines(["name", "x"], [["世界", "1"], ["e\u0301", "2"]])[2:] == ["世界   1", "e\u0301      2"]


def test_where_there_is_no_room_the_widest_columns_are_folded() -> None:
    long = "x" * 25
    found = lines(["run", "error"], [["r1", f"it went wrong {long}"]], 20)
    assert max(map(len, found)) == 20
    assert found[0] == "run   error         "
    folded = [line[6:].rstrip() for line in found[2:]]
    assert folded[0] == "it went wrong"
    assert "".join(folded[1:]) == long, "nothing is cut"


def test_wide_signs_are_folded_too() -> None:
    found = lines(["a"], [["世" * 5]], 5)
    assert found[2:] == ["世世 ", "世世 ", "世   "]


def test_a_terminal_that_is_too_narrow_still_gets_everything() -> None:
    found = lines(["run", "status"], [["order-17", "completed"]], 3)
    assert "".join(line[:4] for line in found[3:]).replace(" ", "") == "order-17"
