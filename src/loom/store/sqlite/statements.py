"""The statements that more than one kind of operation uses. May import the blocks beside it."""

from __future__ import annotations

from loom.store.sqlite.blocks import Many

ADD_CHUNKS = Many(
    """INSERT INTO chunks (run, first_tick, ticks, first_cursor, events, checksum, data, previous)
    SELECT column1, column2, column3, column4, column5, column6, column7, column8 FROM (VALUES {rows})
    WHERE column1 NOTNULL""",
    8,
)
SET_SNAPSHOTS = Many(
    """INSERT OR REPLACE INTO snapshots (run, ticks, checksum, data, link)
    SELECT column1, column2, column3, column4, column5 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    5,
)
SET_TIMERS = Many(
    """INSERT OR REPLACE INTO timers (run, seq, due, purpose)
    SELECT column1, column2, column3, column4 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    4,
)
ADD_WAITING = Many(
    """INSERT OR IGNORE INTO waiting (run, event_type, created_at)
    SELECT column1, column2, column3 FROM (VALUES {rows}) WHERE column1 NOTNULL""",
    3,
)
DELETE_WAITING = Many("DELETE FROM waiting WHERE run IN (VALUES {rows})", 1)
DELETE_TIMERS = Many("DELETE FROM timers WHERE run IN (VALUES {rows})", 1)
DELETE_MAIL = Many("DELETE FROM inbox WHERE run IN (VALUES {rows})", 1)
