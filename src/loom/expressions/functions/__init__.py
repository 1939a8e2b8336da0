"""The functions of the language, one module for each family. Pure.

A family is imported when one of its functions is first asked for, and registers its functions then (see `registry`).
`_NAMES` says which family has which name, so that a name can be checked without an import.
"""

# ruff: noqa: F401 - a family registers its functions when it is imported

from __future__ import annotations

from loom.expressions.functions.registry import FUNCTIONS, Function

_NAMES = {
    "collection": "addProperty chunk contains empty first intersection join last length mergeObjects removeProperty"
    " reverse setProperty skip sort take union",
    "conversion": "array base64 base64ToBinary base64ToString binary bool createArray dataUri dataUriToBinary"
    " dataUriToString decimal decodeBase64 decodeDataUri decodeUriComponent encodeUriComponent float formatNumber"
    " int isFloat isInt json string uriComponent uriComponentToBinary uriComponentToString utf16Length utf8Length",
    "dates": "addDays addHours addMinutes addSeconds addToTime convertFromUtc convertTimeZone convertToUtc"
    " dateDifference dayOfMonth dayOfWeek dayOfYear formatDateTime formatTimeSpan getFutureTime getPastTime"
    " parseDateTime startOfDay startOfHour startOfMonth subtractFromTime ticks utcNow",
    "operators": "add and coalesce div equals greater greaterOrEquals if less lessOrEquals max min mod mul not or rand"
    " range sub",
    "reference": "action actionBody actionOutputs actions agentParameters appsetting body formDataMultiValues"
    " formDataValue item items iterationIndexes listCallbackUrl multipartBody outputs parameters result trigger"
    " triggerBody triggerFormDataMultiValues triggerFormDataValue triggerMultipartBody triggerOutputs triggers"
    " variables workflow",
    "strings": "concat decodeXmlName decodeXmlValue encodeXmlName encodeXmlValue endsWith guid indexOf lastIndexOf"
    " nthIndexOf replace slice split startsWith substring toLower toUpper trim trimByteOrderMark",
    "uris": "uriHost uriPath uriPathAndQuery uriPort uriQuery uriScheme",
    "xml": "xml xpath",
}

_FAMILY_OF = {name.lower(): family for family, names in _NAMES.items() for name in names.split()}


def find(name: str) -> Function | None:
    """Find a function by its name in any case; None if there is none."""
    key = name.lower()
    if key not in FUNCTIONS and key in _FAMILY_OF:
        _load(_FAMILY_OF[key])
    return FUNCTIONS.get(key)


def all_names() -> list[str]:
    """List the names of all functions, as they are usually written."""
    return sorted(name for names in _NAMES.values() for name in names.split())


def _load(family: str) -> None:
    """Import a family, so that it registers its functions. The usual ones come together, the heavy ones alone."""
    match family:
        case "dates":
            from loom.expressions.functions import dates
        case "xml":
            from loom.expressions.functions import xml
        case "strings":
            from loom.expressions.functions import strings
        case "conversion":
            from loom.expressions.functions import conversion
        case "uris":
            from loom.expressions.functions import uris
        case _:
            from loom.expressions.functions import collection, operators, reference
