"""The functions of the language by family. A family is imported when one of its functions is first asked for. Pure."""

# ruff: noqa: F401 - a family registers its functions when it is imported

from __future__ import annotations

from loom.expressions.registry import FUNCTIONS, Function

_NAMES = {
    "collection": "chunk contains empty first intersection join last length reverse skip sort take union",
    "conversion": "array base64 base64ToBinary base64ToString binary bool createArray dataUri dataUriToBinary"
    " dataUriToString decimal decodeBase64 decodeDataUri decodeUriComponent encodeUriComponent float"
    " formDataMultiValues formDataValue int json multipartBody string triggerFormDataMultiValues"
    " triggerFormDataValue triggerMultipartBody uriComponent uriComponentToBinary uriComponentToString utf16Length"
    " utf8Length",
    "dates": "addDays addHours addMinutes addSeconds addToTime convertFromUtc convertTimeZone convertToUtc"
    " dateDifference dayOfMonth dayOfWeek dayOfYear formatDateTime getFutureTime getPastTime parseDateTime startOfDay"
    " startOfHour startOfMonth subtractFromTime ticks utcNow",
    "logical": "and equals greater greaterOrEquals if isFloat isInt less lessOrEquals not or",
    "manipulation": "addProperty coalesce mergeObjects removeProperty setProperty",
    "math": "add div max min mod mul rand range sub",
    "numbers": "formatNumber",
    "reference": "action actionBody actionOutputs actions agentParameters appsetting body item items iterationIndexes"
    " listCallbackUrl outputs parameters result trigger triggerBody triggerOutputs triggers variables workflow",
    "strings": "concat decodeXmlName decodeXmlValue encodeXmlName encodeXmlValue endsWith guid indexOf lastIndexOf"
    " nthIndexOf replace slice split startsWith substring toLower toUpper trim trimByteOrderMark",
    "timespans": "formatTimeSpan",
    "uris": "uriHost uriPath uriPathAndQuery uriPort uriQuery uriScheme",
    "xml": "xml xpath",
}

_FAMILY_OF = {name.lower(): family for family, names in _NAMES.items() for name in names.split()}


def find(name: str) -> Function | None:
    """The function of that name in any case, if there is one."""
    key = name.lower()
    if key not in FUNCTIONS and key in _FAMILY_OF:
        _load(_FAMILY_OF[key])
    return FUNCTIONS.get(key)


def all_names() -> list[str]:
    """The names of all functions, as they are usually written."""
    return sorted(name for names in _NAMES.values() for name in names.split())


def _load(family: str) -> None:
    """Import a family, so that it registers its functions. The usual ones come together, the heavy ones alone."""
    match family:
        case "dates":
            from loom.expressions.functions import dates
        case "timespans":
            from loom.expressions.functions import timespans
        case "numbers":
            from loom.expressions.functions import numbers
        case "xml":
            from loom.expressions.functions import xml
        case "strings":
            from loom.expressions.functions import strings
        case "conversion":
            from loom.expressions.functions import conversion
        case "uris":
            from loom.expressions.functions import uris
        case _:
            from loom.expressions.functions import collection, logical, manipulation, math, reference
