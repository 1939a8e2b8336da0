-- The signature of a run's row, made with a key of LOOM_JOURNAL_KEYS. NULL: without keys, or from before.

ALTER TABLE runs ADD COLUMN mac BLOB;

DROP TRIGGER commit_run;
DROP VIEW commits;

-- As before, with the signature.
CREATE VIEW commits (
    run, fence, ticks, events, updated_at, kept, downtime, link, mac,
    first_tick, chunk_ticks, first_cursor, chunk_events, checksum, data, previous
) AS SELECT id, owner, ticks, events, updated_at, kept, downtime, link, mac, NULL, NULL, NULL, NULL, NULL, NULL, NULL
FROM runs;

CREATE TRIGGER commit_run INSTEAD OF INSERT ON commits BEGIN
    UPDATE runs SET ticks = NEW.ticks, events = NEW.events, updated_at = NEW.updated_at, kept = NEW.kept,
        downtime = NEW.downtime, link = NEW.link, mac = NEW.mac
    WHERE id = NEW.run AND +owner = NEW.fence
        AND (NEW.data ISNULL OR (ticks = NEW.first_tick AND events = NEW.first_cursor));
    SELECT RAISE(ABORT, 'not the owner, or a chunk that does not follow') WHERE changes() = 0;
    INSERT INTO chunks (run, first_tick, ticks, first_cursor, events, checksum, data, previous)
    SELECT NEW.run, NEW.first_tick, NEW.chunk_ticks, NEW.first_cursor, NEW.chunk_events, NEW.checksum, NEW.data,
        NEW.previous
    WHERE NEW.data NOTNULL;
END;
