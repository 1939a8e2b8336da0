-- The definitions that runs were started with. Each is stored once, however many runs have it, and goes with the last of
-- them unless it is pinned. Whoever starts a run with one holds it (FOR KEY SHARE) until the run is there for all to
-- see; whoever deletes it locks it before looking for runs that have it.

CREATE TABLE documents (
    digest text COLLATE "C" PRIMARY KEY,
    created_at float8 NOT NULL,
    pinned boolean NOT NULL DEFAULT false,
    data bytea NOT NULL
);

ALTER TABLE runs ADD COLUMN document text COLLATE "C";
CREATE INDEX runs_by_document ON runs (document) WHERE document IS NOT NULL;
