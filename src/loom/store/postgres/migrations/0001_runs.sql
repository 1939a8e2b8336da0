-- Runs and what belongs to them. Every other table refers to a run by its integer key. There are no foreign keys:
-- checking one with every chunk would cost as much as the chunk.

-- The owner updates a run's row with every commit. No index has a column that each commit changes, and pages keep some
-- space free, so that such an update stays within its page.
CREATE TABLE runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id text COLLATE "C" NOT NULL UNIQUE,
    workflow text NOT NULL,
    status text NOT NULL DEFAULT 'running',
    owner bigint,
    -- What `updated_at` was when nobody owned it any more, for the index of those that wait for a worker.
    free_since float8 NOT NULL,
    created_at float8 NOT NULL,
    updated_at float8 NOT NULL,
    ended_at float8,
    idle_since float8,
    needs_worker boolean NOT NULL DEFAULT true,
    paused boolean NOT NULL DEFAULT false,
    -- Words for people may hold what text in PostgreSQL cannot.
    parked bytea,
    error bytea,
    ticks bigint NOT NULL DEFAULT 0,
    events bigint NOT NULL DEFAULT 0,
    kept bigint NOT NULL DEFAULT 0,
    downtime float8 NOT NULL DEFAULT 0,
    first_tick bigint NOT NULL DEFAULT 0,
    parent text,
    parent_ref bigint NOT NULL DEFAULT 0,
    forked_from text,
    -- Each a JSON list of its name and its value.
    tags text[] NOT NULL DEFAULT '{}',
    waiters bytea NOT NULL DEFAULT '[]',
    waiting_for text[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 70);

-- Lists are newest first by (created_at, run_id): each index brings its runs in that order.
CREATE INDEX runs_by_time ON runs (created_at, run_id);
CREATE INDEX runs_by_status ON runs (status, created_at, run_id);
CREATE INDEX runs_by_workflow ON runs (workflow, created_at, run_id);
CREATE INDEX runs_by_parent ON runs (parent, created_at, run_id) WHERE parent IS NOT NULL;
CREATE INDEX runs_idle ON runs (created_at, run_id, idle_since) WHERE idle_since IS NOT NULL;
CREATE INDEX runs_paused ON runs (created_at, run_id) WHERE paused;
CREATE INDEX runs_parked ON runs (created_at, run_id) WHERE parked IS NOT NULL;
CREATE INDEX runs_waiting ON runs USING gin (waiting_for) WITH (fastupdate = off) WHERE cardinality(waiting_for) > 0;
CREATE INDEX runs_tagged ON runs USING gin (tags) WITH (fastupdate = off) WHERE cardinality(tags) > 0;

-- For workers: what is owned, what must be taken up, what may be purged.
CREATE INDEX runs_owned ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_unattended ON runs (free_since, run_id, workflow)
    WHERE owner IS NULL AND status = 'running' AND needs_worker AND parked IS NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE starts (
    run bigint PRIMARY KEY,
    data bytea NOT NULL
);

-- A chunk may have events without ticks, or neither: those that begin with the same tick are in the order of their ids.
CREATE TABLE chunks (
    id bigint GENERATED ALWAYS AS IDENTITY,
    run bigint NOT NULL,
    first_tick bigint NOT NULL,
    ticks bigint NOT NULL,
    first_cursor bigint NOT NULL,
    events bigint NOT NULL,
    checksum bigint NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, first_tick, id)
);
CREATE INDEX chunks_by_cursor ON chunks (run, first_cursor) WHERE events > 0;

CREATE TABLE snapshots (
    run bigint PRIMARY KEY,
    ticks bigint NOT NULL,
    checksum bigint NOT NULL,
    data bytea NOT NULL
);

CREATE TABLE timers (
    run bigint NOT NULL,
    seq bigint NOT NULL,
    due float8 NOT NULL,
    purpose text NOT NULL,
    PRIMARY KEY (run, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX timers_by_due ON timers (due);

-- Whoever posts has locked the run's row before an id is drawn: within a run, ids follow the order of commits.
CREATE TABLE inbox (
    run bigint NOT NULL,
    id bigint GENERATED ALWAYS AS IDENTITY,
    at float8 NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (run, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02);

CREATE TABLE event_ids (
    run bigint NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    PRIMARY KEY (run, event_id)
);

-- The processes that take runs up, by the database's clock.
CREATE SEQUENCE fences;
CREATE TABLE members (
    fence bigint PRIMARY KEY,
    name text NOT NULL,
    seen_at timestamptz NOT NULL,
    lease_until timestamptz NOT NULL
);

-- When a member that is gone was last seen, and for how many seconds there was none.
CREATE TABLE liveness (
    one boolean PRIMARY KEY DEFAULT true CHECK (one),
    last_alive timestamptz,
    downtime float8 NOT NULL DEFAULT 0
);
INSERT INTO liveness DEFAULT VALUES;
