-- Small things beside the runs: keys of the API, answers to repeated requests, names of definitions. A version is never
-- given twice, so that whoever expects one cannot take another entry of the same key for it.

CREATE SEQUENCE entry_versions;
CREATE TABLE entries (
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    version bigint NOT NULL DEFAULT nextval('entry_versions'),
    expires_at float8,
    data bytea NOT NULL,
    PRIMARY KEY (kind, key)
);
CREATE INDEX entries_by_expiry ON entries (expires_at) WHERE expires_at IS NOT NULL;
