"""How much an expression may ask for. Pure; may import nothing of Loom.

An expression has no loops: it does a fixed number of calls, at most one for every three characters of its text. So it
is bounded in time if each call is, and in space if all calls together are. Hence these limits, and no count of steps.
"""

from __future__ import annotations

MAX_LENGTH = 8_192
"""Characters of one template string that has expressions in it."""
MAX_NESTING = 100
"""How deep calls, arguments and indexes may be nested in an expression."""
MAX_DEPTH = 100
"""How deep arrays and objects may be nested in each other."""
MAX_TEXT = 16 * 1024 * 1024
"""Characters of a text that a function builds."""
MAX_TOTAL = 4 * MAX_TEXT
"""Characters of all texts that the calls of one evaluation build; an element of an array counts as sixteen."""
MAX_ITEMS = 1024 * 1024
"""Elements of an array, or properties of an object, that a function builds."""
MAX_NODES = 1024 * 1024
"""Elements and properties that are looked at to write a value as text, or to say whether two are equal."""
