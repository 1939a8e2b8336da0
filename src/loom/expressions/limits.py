"""How much an expression may ask for. Pure; may import nothing of Loom.

An expression has no loops: it does a fixed number of calls, at most one for every three characters of its text. What a
call costs is counted in units, which are equal on every machine, and bounded for all calls of one action together:
`metering` counts, the constants are here.
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
"""Characters of all texts that the calls of one evaluation build; an element of an array counts as sixteen. It holds
for runs that began before there were budgets."""
MAX_ITEMS = 1024 * 1024
"""Elements of an array, or properties of an object, that a function builds."""
MAX_NODES = 1024 * 1024
"""Elements and properties that are looked at to write a value as text, or to say whether two are equal."""

MAX_UNITS = 64 * 1024 * 1024
"""Units of work that the expressions of one action may take together. A unit is about 10 ns of a core."""
MAX_BYTES = 128 * 1024 * 1024
"""Bytes that they may build together. A character counts as one byte."""
FREE = 1024
"""A call on fewer characters costs no more than being called."""
FEW = 64
"""A call on fewer elements likewise. They cost more than characters do, and a document can have thousands of calls."""
CALL = 100
"""Units of one call of a function."""
ELEMENT = 16
"""Units of an element that a function copies, compares or makes without looking into it."""
NODE = 64
"""Units of a part of a value, or a node of XML, that a function looks at one by one."""
SLOT, BOX = 8, 88
"""Bytes of an element in an array, and of an array or object itself."""
