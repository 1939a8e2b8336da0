"""Writing numbers in .NET's formats."""

from __future__ import annotations

import contextlib
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom.expressions.dotnet.cultures import EN_US, INVARIANT, culture_of
from loom.expressions.dotnet.numbers import format_number
from loom.expressions.errors import FunctionError


@pytest.mark.parametrize(
    ("value", "fmt", "text"),
    [
        (17.35, "C2", "$17.35"),
        (-1234.5, "C", "-$1,234.50"),
        (123, "C0", "$123"),
        (42, "D5", "00042"),
        (-42, "D5", "-00042"),
        (1234.5678, "E2", "1.23E+003"),
        (0.00012, "e1", "1.2e-004"),
        (0, "E", "0.000000E+000"),
        (9.999, "E1", "1.0E+001"),
        (1234.5678, "F", "1234.57"),
        (Decimal("2.675"), "F2", "2.68"),
        (-0.5, "F0", "-1"),
        (1234567, "N0", "1,234,567"),
        (-1234.5, "N", "-1,234.50"),
        (999, "N0", "999"),
        (0.12345, "P", "12.35%"),
        (1, "P0", "100%"),
        (255, "X", "FF"),
        (255, "x8", "000000ff"),
        (-1, "X", "FFFFFFFFFFFFFFFF"),
        (0.1, "R", "0.1"),
        (1e20, "G", "1E+20"),
        (1234.5678, "G6", "1234.57"),
        (1234.5678, "G2", "1.2E+03"),
        (0.000123, "G2", "0.00012"),
        (0.0000123, "G2", "1.2E-05"),
        (100, "G3", "100"),
        (Decimal("5.000"), "G", "5.000"),
        (float("nan"), "C2", "NaN"),
        (float("-inf"), "0.00", "-∞"),
        (2**63 - 1, "N0", "9,223,372,036,854,775,807"),
    ],
)
def test_standard_formats(value: float | Decimal, fmt: str, text: str) -> None:
    assert format_number(value, fmt, EN_US.numbers) == text


@pytest.mark.parametrize(
    ("value", "fmt", "text"),
    [
        (1234567890, "0,0.00", "1,234,567,890.00"),
        (1234.5, "#,##0.00", "1,234.50"),
        (-1234.5, "#,##0.00", "-1,234.50"),
        (0, "#.##", ""),
        (0.5, "#.##", ".5"),
        (0.5, "0.##", "0.5"),
        (5, "0.##", "5"),
        (5, "000.0", "005.0"),
        (2.675, "0.00", "2.68"),
        (-5, "#;(#)", "(5)"),
        (5, "#;(#)", "5"),
        (0, "0;neg;zero", "zero"),
        (0.001, "0.00;neg;zero", "zero"),
        (-0.001, "0.00;(0.00)", "0.00"),
        (-5, "0;;zero", "-5"),
        (0.375, "0.0%", "37.5%"),
        (0.375, "0‰", "375‰"),
        (1234567, "#,##0,,M", "1M"),
        (1500, "0,.0K", "1.5K"),
        (86000, "0.###E+0", "8.6E+4"),
        (86000, "00.##e-00", "86e03"),
        (0.0005, "0E-0", "5E-4"),
        (1234567890, "(###) ###-####", "(123) 456-7890"),
        (123456, "##-##-##", "12-34-56"),
        (12.5, ".00", "12.50"),
        (5, "'#'0\\0\"x\"", "#50x"),
        (7, "abc", "abc"),
        (-7, "abc0", "-abc7"),
        (1.0, "0.0#;-0.0#", "1.0"),
    ],
)
def test_custom_formats(value: float, fmt: str, text: str) -> None:
    assert format_number(value, fmt, EN_US.numbers) == text


@pytest.mark.parametrize(
    ("value", "fmt"),
    [
        (1.5, "D"),
        (1.5, "X"),
        (1, "R"),
        (1, "Q"),
        (1, "Z2"),
        (1, "F1000"),
        (1, "0" + "%" * 3000),
        (1, "." + "0" * 5000),
        (1, "x" * 9000),
    ],
)
def test_formats_that_do_not_fit_are_refused(value: float, fmt: str) -> None:
    with pytest.raises(FunctionError):
        format_number(value, fmt, EN_US.numbers)


def test_the_invariant_culture_has_its_own_symbols() -> None:
    assert format_number(-1234.5, "C", INVARIANT.numbers) == "(¤1,234.50)"
    assert format_number(0.5, "P0", INVARIANT.numbers) == "50 %"
    assert format_number(float("inf"), "P0", INVARIANT.numbers) == "Infinity"


@pytest.mark.parametrize(
    ("locale", "value", "fmt", "text"),
    [
        ("is-IS", 1234567890, "0,0.00", "1.234.567.890,00"),
        ("de-DE", -1234.5, "C", "-1.234,50\xa0€"),
        ("de", 1.5, "C", "1,50\xa0€"),
        ("hi-IN", 12345678, "N0", "1,23,45,678"),
        ("fr-FR", 0.5, "P0", "50\u202f%"),
        ("en-GB", 3, "C", "£3.00"),
        ("ja-JP", 1.5, "C", "￥2"),
    ],
)
def test_other_cultures(locale: str, value: float, fmt: str, text: str) -> None:
    pytest.importorskip("babel")
    # Which kind of blank CLDR has between a number and its sign changes with its version.
    assert format_number(value, fmt, culture_of(locale).numbers).replace("\u202f", "\xa0") == text.replace(
        "\u202f", "\xa0"
    )


@given(st.integers(-(2**63), 2**63 - 1))
def test_groups_and_placeholders_agree_with_python(value: int) -> None:
    assert format_number(value, "N0", EN_US.numbers) == f"{value:,}"
    assert format_number(value, "#,##0", EN_US.numbers) == f"{value:,}"
    assert format_number(value, "D", EN_US.numbers) == str(value)


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(0, 20))
def test_exponents_agree_with_python_but_for_ties(value: float, digits: int) -> None:
    mantissa, _, exponent = f"{value:.{digits}E}".partition("E")
    ours, _, power = format_number(value, f"E{digits}", EN_US.numbers).partition("E")
    if (Decimal(ours), int(power)) != (Decimal(mantissa), int(exponent)):
        exact = abs(Decimal(value))
        tie = exact.scaleb(digits - exact.adjusted())
        assert tie % 1 == Decimal("0.5")


@given(st.one_of(st.integers(-(2**63), 2**63 - 1), st.floats()), st.text("0#.,%;E+-'\"\\ xCDGNPRX123‰", max_size=30))
def test_any_format_gives_a_text_or_is_refused(value: float, fmt: str) -> None:
    with contextlib.suppress(FunctionError):
        assert isinstance(format_number(value, fmt, EN_US.numbers), str)
