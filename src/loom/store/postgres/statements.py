"""The SQL of all writes. Each statement takes columns of values as arrays, so that it serves any number of rows.

All writers lock rows of `runs` in the order of their keys, or skip locked ones: they cannot wait for each other in a
circle.
"""

from __future__ import annotations

START_RUNS = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::text[], $2::text[], $3::bytea[], $4::float8[], $5::text[], $6::text[], $7::bigint[], $8::bigint[],
        $9::float8[], $10::text[], $11::bytea[]
    ) AS g (run_id, workflow, start, created_at, tags, parent, parent_ref, owner, downtime, document, mac)
), new AS (
    INSERT INTO runs (
        run_id, workflow, created_at, updated_at, free_since, tags, parent, parent_ref, owner, downtime, document, mac
    )
    SELECT run_id, workflow, created_at, created_at, created_at,
        ARRAY (SELECT jsonb_array_elements_text(tags::jsonb)), parent, parent_ref, owner, downtime, document,
        mac
    FROM given ORDER BY run_id COLLATE "C"
    ON CONFLICT (run_id) DO NOTHING
    RETURNING id, run_id
), kept AS (
    INSERT INTO starts (run, data) SELECT new.id, given.start FROM new JOIN given USING (run_id)
)
SELECT run_id, id FROM new
"""

UNDO_STARTS = """
WITH gone AS (DELETE FROM runs WHERE id = ANY ($1::bigint[]))
DELETE FROM starts WHERE run = ANY ($1::bigint[])
"""

LOCK_RUNS = """
SELECT id, run_id, owner, status, kept, ticks, events, document,
    EXISTS (SELECT FROM deaths d WHERE d.run = runs.id AND d.suspect)
FROM runs WHERE run_id = ANY ($1::text[]) ORDER BY id FOR UPDATE
"""

STARTED_BEFORE = """
SELECT r.run_id, r.workflow, s.data FROM runs r JOIN starts s ON s.run = r.id WHERE r.run_id = ANY ($1::text[])
"""

COUNT_MESSAGES = "SELECT run, count(*) FROM inbox WHERE run = ANY ($1::bigint[]) GROUP BY run"

KNOWN_EVENT_IDS = """
SELECT e.run, e.event_id FROM event_ids e
JOIN unnest($1::bigint[], $2::text[]) AS g (run, event_id) ON e.run = g.run AND e.event_id = g.event_id
"""

# The heads of commits and their chunks. Of the runs that are owned by the fence, it returns whether the chunk follows
# what is stored (a commit that was written, without its writer knowing, must not be written twice); if one does not,
# nothing at all is written.
COMMIT_RUNS = """
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        $1::text[], $2::bigint[], $3::text[], $4::bigint[], $5::bigint[], $6::float8[], $7::float8[], $8::boolean[],
        $9::bytea[], $10::text[], $11::bigint[], $12::boolean[], $13::bytea[], $14::bytea[], $15::float8[],
        $16::bytea[], $17::bytea[], $18::bigint[], $19::bigint[], $20::bigint[], $21::bigint[], $22::bigint[],
        $23::bytea[], $24::bytea[]
    ) AS g (
        run_id, fence, status, ticks, events, updated_at, idle_since, needs_worker,
        waiters, waiting_for, kept, paused, parked, error, downtime, link, mac,
        first_tick, chunk_ticks, first_cursor, chunk_events, checksum, data, previous
    )
), locked AS MATERIALIZED (
    SELECT id, run_id, owner, ticks, events FROM runs WHERE run_id = ANY ($1::text[]) ORDER BY id FOR UPDATE
), owned AS MATERIALIZED (
    SELECT l.id, coalesce(g.first_tick = l.ticks AND g.first_cursor = l.events, true) AS follows, g.*
    FROM locked l JOIN given g ON g.run_id = l.run_id AND g.fence = l.owner
), head AS (
    UPDATE runs r SET
        status = o.status, ticks = o.ticks, events = o.events, updated_at = o.updated_at, idle_since = o.idle_since,
        needs_worker = o.needs_worker, kept = o.kept, paused = o.paused, parked = o.parked, error = o.error,
        downtime = o.downtime, link = o.link, mac = o.mac,
        owner = CASE WHEN o.status = 'running' THEN r.owner END,
        ended_at = CASE WHEN o.status <> 'running' THEN o.updated_at END,
        waiters = coalesce(o.waiters, r.waiters),
        waiting_for = CASE WHEN o.waiting_for IS NULL THEN r.waiting_for
            ELSE ARRAY (SELECT jsonb_array_elements_text(o.waiting_for::jsonb)) END
    FROM owned o WHERE r.id = o.id AND (SELECT bool_and(follows) FROM owned)
    RETURNING r.id, o.first_tick, o.chunk_ticks, o.first_cursor, o.chunk_events, o.checksum, o.data, o.previous
), chunk AS (
    INSERT INTO chunks (run, first_tick, ticks, first_cursor, events, checksum, data, previous)
    SELECT * FROM head WHERE data IS NOT NULL
)
SELECT run_id, follows FROM owned
"""

WRITE_SNAPSHOTS = """
INSERT INTO snapshots (run, ticks, checksum, data, link)
SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bytea[], $5::bytea[])
ON CONFLICT (run) DO UPDATE
SET ticks = excluded.ticks, checksum = excluded.checksum, data = excluded.data, link = excluded.link
"""

PRUNE = """
WITH covered AS (
    DELETE FROM chunks c USING unnest($1::bigint[], $2::bigint[]) AS g (run, ticks)
    WHERE c.run = g.run AND c.first_tick <= g.ticks AND c.first_tick + c.ticks <= g.ticks
    RETURNING c.run, c.first_tick + c.ticks AS after
)
UPDATE runs SET first_tick = p.after
FROM (SELECT run, max(after) AS after FROM covered GROUP BY run) p WHERE runs.id = p.run
"""

SET_TIMERS = """
INSERT INTO timers (run, seq, due, purpose) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::float8[], $4::text[])
ON CONFLICT (run, seq) DO UPDATE SET due = excluded.due, purpose = excluded.purpose
"""

DROP_TIMERS = """
DELETE FROM timers t USING unnest($1::bigint[], $2::bigint[]) AS g (run, seq) WHERE t.run = g.run AND t.seq = g.seq
"""

WRITE_MESSAGES = """
INSERT INTO inbox (run, at, data)
SELECT run, at, data
FROM unnest($1::bigint[], $2::float8[], $3::bytea[]) WITH ORDINALITY AS g (run, at, data, n) ORDER BY n
"""

WRITE_EVENT_IDS = "INSERT INTO event_ids (run, event_id) SELECT * FROM unnest($1::bigint[], $2::text[])"

DROP_MESSAGES = """
DELETE FROM inbox i USING unnest($1::bigint[], $2::bigint[]) AS g (run, id) WHERE i.run = g.run AND i.id = g.id
"""

CLEAR_ENDED = """
WITH timers_gone AS (DELETE FROM timers WHERE run = ANY ($1::bigint[]))
DELETE FROM inbox WHERE run = ANY ($2::bigint[])
"""

REOPEN_RUNS = """
UPDATE runs SET status = 'running', needs_worker = true, error = NULL, ended_at = NULL, free_since = updated_at,
    mac = g.mac
FROM unnest($1::bigint[], $2::bytea[]) AS g (run, mac) WHERE runs.id = g.run
"""

# Only a row that is as it was read: its owner may have gone on since.
SIGN_HEAD = """
UPDATE runs SET mac = $1 WHERE run_id = $2 AND workflow = $3 AND status = $4 AND ticks = $5 AND events = $6
AND document IS NOT DISTINCT FROM $7 AND mac IS NULL RETURNING true
"""

LOCK_TAGS = "SELECT id, tags FROM runs WHERE run_id = $1 FOR UPDATE"

SET_TAGS = "UPDATE runs SET tags = $2::text[] WHERE id = $1"

SET_OWNERS = """
UPDATE runs r SET owner = g.owner, parked = coalesce(g.parked, r.parked), free_since = r.updated_at
FROM unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS g (run, owner, parked) WHERE r.id = g.run
"""

SET_DOCUMENTS = """
UPDATE runs r SET document = g.document FROM unnest($1::bigint[], $2::text[]) AS g (run, document) WHERE r.id = g.run
"""

CLAIM_RUNS = """
WITH needing AS MATERIALIZED (
    SELECT id FROM runs
    WHERE owner IS NULL AND status = 'running' AND needs_worker AND parked IS NULL AND workflow = ANY ($2::text[])
    AND NOT EXISTS (SELECT FROM deaths d WHERE d.run = runs.id AND d.suspect)
    ORDER BY free_since, run_id LIMIT $4::bigint FOR UPDATE SKIP LOCKED
), ready AS (
    SELECT id FROM needing
    UNION SELECT run FROM inbox
    UNION SELECT run FROM timers WHERE due <= $3::float8
), chosen AS (
    SELECT id, run_id, updated_at FROM runs WHERE id = ANY (ARRAY (SELECT id FROM ready))
    AND owner IS NULL AND status = 'running' AND parked IS NULL AND workflow = ANY ($2::text[])
    AND NOT EXISTS (SELECT FROM deaths d WHERE d.run = runs.id AND d.suspect)
    ORDER BY updated_at, run_id LIMIT $4::bigint FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE runs SET owner = $1::bigint FROM chosen WHERE runs.id = chosen.id
)
SELECT run_id FROM chosen ORDER BY updated_at, run_id
"""

ENDED_RUN = """
SELECT id, document FROM runs
WHERE run_id = $1::text AND ended_at IS NOT NULL AND ($2::float8 IS NULL OR ended_at < $2) LIMIT $3::bigint FOR UPDATE
"""

OLD_RUNS = """
SELECT id, document FROM runs
WHERE ended_at < $1::float8 ORDER BY ended_at, run_id LIMIT $2::bigint FOR UPDATE SKIP LOCKED
"""

PURGE_RUNS = """
WITH starts_gone AS (DELETE FROM starts WHERE run = ANY ($1::bigint[])),
    chunks_gone AS (DELETE FROM chunks WHERE run = ANY ($1::bigint[])),
    snapshots_gone AS (DELETE FROM snapshots WHERE run = ANY ($1::bigint[])),
    timers_gone AS (DELETE FROM timers WHERE run = ANY ($1::bigint[])),
    mail_gone AS (DELETE FROM inbox WHERE run = ANY ($1::bigint[])),
    event_ids_gone AS (DELETE FROM event_ids WHERE run = ANY ($1::bigint[])),
    deaths_gone AS (DELETE FROM deaths WHERE run = ANY ($1::bigint[]))
DELETE FROM runs WHERE id = ANY ($1::bigint[])
"""

IMPORT_RUN = """
INSERT INTO runs (
    run_id, workflow, status, created_at, updated_at, free_since, ended_at, idle_since, needs_worker, paused, parked,
    error, ticks, events, kept, downtime, first_tick, parent, parent_ref, forked_from, tags, waiters, waiting_for,
    document, link, mac
) VALUES (
    $1, $2, $3, $4, $5, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23,
    $24, $25
)
ON CONFLICT (run_id) DO NOTHING RETURNING id
"""

WRITE_START = "INSERT INTO starts (run, data) VALUES ($1, $2)"

WRITE_CHUNKS = """
INSERT INTO chunks (run, first_tick, ticks, first_cursor, events, checksum, data, previous)
SELECT run, first_tick, ticks, first_cursor, events, checksum, data, previous
FROM unnest(
    $1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[], $8::bytea[]
) WITH ORDINALITY AS g (run, first_tick, ticks, first_cursor, events, checksum, data, previous, n) ORDER BY n
"""

NOTIFY = "SELECT pg_notify($1, payload) FROM unnest($2::text[]) AS payload"
