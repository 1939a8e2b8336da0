-- For feeds of changes: see loom.store.changes. What is written while a run has an owner is found by a look at the runs
-- with owners; the rest is logged here, with the number of its transaction. Numbers are drawn before transactions end,
-- so a look compares them with the transactions that the last look has seen, not with a number.

CREATE TABLE changes (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    run_id text COLLATE "C" NOT NULL,
    workflow text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX changes_by_transaction ON changes (xid);

CREATE FUNCTION log_change() RETURNS trigger LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        INSERT INTO changes (run_id, workflow) VALUES (OLD.run_id, OLD.workflow);
    ELSE
        INSERT INTO changes (run_id, workflow) VALUES (NEW.run_id, NEW.workflow);
    END IF;
    RETURN NULL;
END
$$;

CREATE TRIGGER change_of_new_run AFTER INSERT ON runs FOR EACH ROW WHEN (NEW.owner IS NULL)
    EXECUTE FUNCTION log_change();
-- A commit that leaves its run with its owner logs nothing.
CREATE TRIGGER change_without_owner AFTER UPDATE ON runs FOR EACH ROW WHEN (NEW.owner IS NULL)
    EXECUTE FUNCTION log_change();
CREATE TRIGGER change_by_deletion AFTER DELETE ON runs FOR EACH ROW
    EXECUTE FUNCTION log_change();
