-- The definitions that runs were started with. Each is stored once, however many runs have it, and goes with the last of
-- them unless it is pinned. What is asked for without the text stands before it, so that long texts are not read for it.

CREATE TABLE documents (
    digest TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    pinned INTEGER NOT NULL,
    data BLOB NOT NULL
);

ALTER TABLE runs ADD COLUMN document TEXT;
CREATE INDEX runs_by_document ON runs (document) WHERE document IS NOT NULL;
