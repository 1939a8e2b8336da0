-- For lists of runs. A commit of a busy run changes none of these: its row is in no index that has what it writes.

-- Runs that only a timer will move.
CREATE INDEX runs_asleep ON runs (created_at, run_id, workflow)
    WHERE status = 'running' AND idle_since IS NULL AND needs_worker = 0 AND paused = 0 AND parked IS NULL;

-- Runs that wait for an event from outside. The other texts are all that the engine and services answer by themselves.
CREATE INDEX runs_waiting ON runs (created_at, run_id, workflow)
    WHERE status = 'running' AND waiting_for NOT IN (
        '[]',
        '["child run"]',
        '["CallbackEvent","loom.flows.CallbackEvent"]',
        '["ActorReply","loom.flows.ActorReply"]',
        '["CallbackEvent","child run","loom.flows.CallbackEvent"]',
        '["ActorReply","child run","loom.flows.ActorReply"]',
        '["ActorReply","CallbackEvent","loom.flows.ActorReply","loom.flows.CallbackEvent"]',
        '["ActorReply","CallbackEvent","child run","loom.flows.ActorReply","loom.flows.CallbackEvent"]'
    );

-- Runs by their last change, but for busy ones: they are few, and sorted when they are asked for.
CREATE INDEX runs_by_update ON runs (updated_at, run_id, status, workflow)
    WHERE status <> 'running' OR needs_worker = 0 OR parked IS NOT NULL;
