"""Finding a culture by its name. Pure; may import `cultures`, and `cldr` for the cultures that are not built in."""

from __future__ import annotations

from loom.expressions.dotnet.cultures import EN_US, INVARIANT, Culture
from loom.expressions.remembered import remembered


@remembered(64)
def culture_of(name: str) -> Culture:
    """The culture of a name such as `fr-FR`, in any case; the empty name is the invariant culture."""
    key = name.strip().replace("_", "-").lower()
    if key in ("", "iv"):
        return INVARIANT
    if key in ("en-us", "en"):
        return EN_US
    from loom.expressions.dotnet.cldr import culture_from_cldr

    return culture_from_cldr(key)
