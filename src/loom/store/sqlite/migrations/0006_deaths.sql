-- Runs that were at work in processes that died uncleanly: see loom.store.deaths. Most of the time it is empty.

CREATE TABLE deaths (
    run INTEGER PRIMARY KEY,
    marks INTEGER NOT NULL,
    own INTEGER NOT NULL,
    at REAL NOT NULL,
    suspect INTEGER NOT NULL,
    trial INTEGER,
    fence INTEGER NOT NULL
);
