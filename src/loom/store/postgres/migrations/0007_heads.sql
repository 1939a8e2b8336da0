-- The signature of a run's row, made with a key of LOOM_JOURNAL_KEYS. NULL: without keys, or from before.

ALTER TABLE runs ADD COLUMN mac bytea;
