-- Small things beside the runs: keys of the API, answers to repeated requests, names of definitions. A version is never
-- given twice, so that whoever expects one cannot take another entry of the same key for it.

CREATE TABLE entries (
    version INTEGER PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    expires_at REAL,
    data BLOB NOT NULL,
    UNIQUE (kind, key)
);
CREATE INDEX entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL;

-- For lists of runs: those that are idle by workflow and by how long they have been, and those that are at work.
CREATE INDEX runs_idle_by_workflow ON runs (workflow, created_at, run_id, idle_since, status)
    WHERE idle_since IS NOT NULL;
CREATE INDEX runs_by_idle_since ON runs (idle_since) WHERE idle_since IS NOT NULL;
CREATE INDEX runs_busy ON runs (created_at, run_id, workflow) WHERE status = 'running' AND idle_since IS NULL;
