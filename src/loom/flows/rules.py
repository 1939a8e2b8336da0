"""Rules of the walk that have changed since runs were first stored.

A run records the number of its rules when it starts and keeps it. So a stored run replays and goes on as it began. Each
change of what the walk decides has a name here, with the first number that it holds for. The walk asks for it with
`walk.rules >= NAME`. A change that comes after a release gets the next number.
"""

from __future__ import annotations

AS_FIRST = 0
"""Runs that recorded no number. A retry of the run begins failed containers anew."""

RETRIES_GO_ON = 1
"""A retry of the run goes on inside failed containers, at the failed action."""

FOREACH_HAS_RESULTS = 1
"""`loopResult` and `loopStartTime` can be read in a `foreach`."""

RETRIES_HAVE_LIMITS = 1
"""The system limits hold for all tries of an action, and a fixed interval is no shorter than the minimum."""

ACTIONS_HAVE_BUDGETS = 2
"""All expressions of an action together have a budget, and a burst yields when it has cost enough. `xpath` is Loom's
own, checks by a schema are bounded, and JSON with a number beyond every float, such as `1e999`, is refused."""

LOOP_TIMEOUTS_HAVE_A_CODE = 3
"""A loop of Loom's rules that its timeout has ended fails with `LoopTimedOut`, before with `LoopLimitReached`."""

LOOP_RESULTS_ARE_CUT = 3
"""`loopResult` is cut before it is nested too deep to be carried further, and the loop warns of it."""

NEWEST = 3
"""Number that new runs record."""
