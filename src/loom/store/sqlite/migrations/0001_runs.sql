-- Runs and what belongs to them. Every other table refers to a run by its integer key.

CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run_id TEXT NOT NULL UNIQUE,
    workflow TEXT NOT NULL,
    status TEXT NOT NULL,
    owner INTEGER,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    ended_at REAL,
    idle_since REAL,
    needs_worker INTEGER NOT NULL,
    paused INTEGER NOT NULL,
    parked TEXT,
    error TEXT,
    ticks INTEGER NOT NULL,
    events INTEGER NOT NULL,
    kept INTEGER NOT NULL,
    downtime REAL NOT NULL,
    first_tick INTEGER NOT NULL,
    parent TEXT,
    parent_ref INTEGER NOT NULL,
    forked_from TEXT,
    tags TEXT NOT NULL,
    waiters BLOB NOT NULL,
    waiting_for TEXT NOT NULL
);

-- Lists are newest first by (created_at, run_id): each index brings its runs in that order.
CREATE INDEX runs_by_time ON runs (created_at, run_id);
CREATE INDEX runs_by_status ON runs (status, created_at, run_id, workflow);
CREATE INDEX runs_by_workflow ON runs (workflow, created_at, run_id, status);
CREATE INDEX runs_by_parent ON runs (parent, created_at, run_id) WHERE parent IS NOT NULL;
CREATE INDEX runs_idle ON runs (created_at, run_id, idle_since, workflow, status) WHERE idle_since IS NOT NULL;
CREATE INDEX runs_paused ON runs (created_at, run_id) WHERE paused = 1;
CREATE INDEX runs_parked ON runs (created_at, run_id) WHERE parked IS NOT NULL;

-- For engines: what is owned, what must be taken up, what may be purged.
CREATE INDEX runs_owned ON runs (owner) WHERE owner IS NOT NULL;
CREATE INDEX runs_unattended ON runs (workflow, updated_at, run_id)
    WHERE owner IS NULL AND status = 'running' AND needs_worker = 1 AND parked IS NULL;
CREATE INDEX runs_ended ON runs (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE starts (
    run INTEGER PRIMARY KEY,
    data BLOB NOT NULL
);

-- Chunks are appended: the rows of many runs share a page, and only the small indexes are spread.
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL,
    first_tick INTEGER NOT NULL,
    ticks INTEGER NOT NULL,
    first_cursor INTEGER NOT NULL,
    events INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX chunks_by_tick ON chunks (run, first_tick);
-- Only the chunks that cross a multiple of 64 events: a reader begins at the one before its cursor and skips a few.
CREATE INDEX chunks_by_cursor ON chunks (run, first_cursor) WHERE (first_cursor + events) / 64 > first_cursor / 64;

CREATE TABLE snapshots (
    run INTEGER PRIMARY KEY,
    ticks INTEGER NOT NULL,
    checksum INTEGER NOT NULL,
    data BLOB NOT NULL
);

CREATE TABLE timers (
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    due REAL NOT NULL,
    purpose TEXT NOT NULL,
    PRIMARY KEY (run, seq)
) WITHOUT ROWID;
CREATE INDEX timers_by_due ON timers (due);

-- The ids of mail are never given twice, so that whoever reads behind an id misses nothing.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    at REAL NOT NULL,
    data BLOB NOT NULL
);
CREATE INDEX inbox_by_run ON inbox (run);

CREATE TABLE event_ids (
    run INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    PRIMARY KEY (run, event_id)
) WITHOUT ROWID;

-- `created_at` is that of the run: a search by type or tag then finds its runs in the order of lists.
CREATE TABLE waiting (
    run INTEGER NOT NULL,
    event_type TEXT NOT NULL,
    created_at REAL NOT NULL,
    PRIMARY KEY (run, event_type)
) WITHOUT ROWID;
CREATE INDEX waiting_by_type ON waiting (event_type, created_at);

CREATE TABLE tags (
    run INTEGER NOT NULL,
    name TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at REAL NOT NULL,
    PRIMARY KEY (run, name)
) WITHOUT ROWID;
CREATE INDEX tags_by_value ON tags (name, value, created_at);

-- What happened lately, for the other processes that have the file open; old rows are deleted.
CREATE TABLE news (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run INTEGER NOT NULL,
    source INTEGER NOT NULL
);

-- The one engine: its fence, when it was last known to live, and how long there was none.
CREATE TABLE engine (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    fence INTEGER NOT NULL,
    name TEXT NOT NULL,
    last_alive REAL,
    downtime REAL NOT NULL
);
INSERT INTO engine (one, fence, name, last_alive, downtime) VALUES (1, 0, '', NULL, 0.0);

-- What every commit of a run writes, as one row: many commits are one statement, and a single one needs no BEGIN.
-- It is refused if `fence` does not own the run, or if the chunk does not follow on what is stored, so that a commit
-- whose outcome nobody knew is never written twice.
CREATE VIEW commits (
    run, fence, ticks, events, updated_at, kept, downtime,
    first_tick, chunk_ticks, first_cursor, chunk_events, checksum, data
) AS SELECT id, owner, ticks, events, updated_at, kept, downtime, NULL, NULL, NULL, NULL, NULL, NULL FROM runs;

CREATE TRIGGER commit_run INSTEAD OF INSERT ON commits BEGIN
    UPDATE runs SET ticks = NEW.ticks, events = NEW.events, updated_at = NEW.updated_at, kept = NEW.kept,
        downtime = NEW.downtime
    WHERE id = NEW.run AND +owner = NEW.fence
        AND (NEW.data ISNULL OR (ticks = NEW.first_tick AND events = NEW.first_cursor));
    SELECT RAISE(ABORT, 'not the owner, or a chunk that does not follow') WHERE changes() = 0;
    INSERT INTO chunks (run, first_tick, ticks, first_cursor, events, checksum, data)
    SELECT NEW.run, NEW.first_tick, NEW.chunk_ticks, NEW.first_cursor, NEW.chunk_events, NEW.checksum, NEW.data
    WHERE NEW.data NOTNULL;
END;
