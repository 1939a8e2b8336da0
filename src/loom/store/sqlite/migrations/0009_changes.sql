-- For feeds of changes: see loom.store.changes. What is written while a run has an owner is found by a look at the runs
-- with owners; the rest is logged here. A commit of a busy run sets none of the columns below, so it logs nothing.

CREATE TABLE changes (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL,
    workflow TEXT NOT NULL
);

CREATE TRIGGER change_of_new_run AFTER INSERT ON runs WHEN NEW.owner ISNULL BEGIN
    INSERT INTO changes (run_id, workflow) VALUES (NEW.run_id, NEW.workflow);
END;

CREATE TRIGGER change_without_owner AFTER UPDATE OF owner, status, parked, tags ON runs
WHEN NEW.owner ISNULL OR NEW.tags <> OLD.tags BEGIN
    INSERT INTO changes (run_id, workflow) VALUES (NEW.run_id, NEW.workflow);
END;

CREATE TRIGGER change_by_deletion AFTER DELETE ON runs BEGIN
    INSERT INTO changes (run_id, workflow) VALUES (OLD.run_id, OLD.workflow);
END;

CREATE TRIGGER changes_kept AFTER INSERT ON changes WHEN NEW.id % 1024 = 0 BEGIN
    DELETE FROM changes WHERE id <= NEW.id - 16384;
END;
