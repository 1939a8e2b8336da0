-- For lists of runs. No index has a column that a commit of a busy run changes, so that its update stays within its page.

-- When a run came to rest: the time of its last change, or NULL while it is busy.
ALTER TABLE runs ADD COLUMN rested_at float8 GENERATED ALWAYS AS (
    CASE WHEN status <> 'running' OR NOT needs_worker OR parked IS NOT NULL THEN updated_at END
) STORED;
CREATE INDEX runs_rested ON runs (rested_at, run_id) WHERE rested_at IS NOT NULL;

-- Runs that only a timer will move.
CREATE INDEX runs_asleep ON runs (created_at, run_id)
    WHERE status = 'running' AND idle_since IS NULL AND NOT needs_worker AND NOT paused AND parked IS NULL;

-- Runs that wait for an event from outside: for more than the engine and services answer by themselves.
CREATE INDEX runs_waiting_outside ON runs (created_at, run_id)
    WHERE status = 'running' AND NOT waiting_for <@ ARRAY[
        'child run', 'CallbackEvent', 'loom.flows.CallbackEvent', 'ActorReply', 'loom.flows.ActorReply'
    ];
