-- For lists of runs: those that are idle although they wait for nothing, and are neither paused nor parked.

CREATE INDEX runs_stuck ON runs (created_at, run_id)
    WHERE status = 'running' AND idle_since IS NOT NULL AND waiting_for = '[]' AND paused = 0 AND parked IS NULL;
