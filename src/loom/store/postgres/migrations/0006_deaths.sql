-- Runs that were at work in processes that died uncleanly: see loom.store.deaths. Most of the time it is empty.

CREATE TABLE deaths (
    run bigint PRIMARY KEY,
    marks bigint NOT NULL,
    own bigint NOT NULL,
    at float8 NOT NULL,
    suspect boolean NOT NULL,
    trial bigint,
    fence bigint NOT NULL
);
