-- The chain of a journal: a chunk has the link of the one before it, a run that of its last one. NULL: from before.

ALTER TABLE chunks ADD COLUMN previous bytea;
ALTER TABLE snapshots ADD COLUMN link bytea;
ALTER TABLE runs ADD COLUMN link bytea;
