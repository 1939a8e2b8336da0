-- For lists of runs: those that are idle although they wait for nothing, and are neither paused nor parked.

CREATE INDEX runs_stuck ON runs (created_at, run_id)
    WHERE status = 'running' AND idle_since IS NOT NULL AND cardinality(waiting_for) = 0 AND NOT paused
    AND parked IS NULL;
