-- What agents have done over whole tasks.
CREATE TABLE runs (
    key      TEXT NOT NULL,
    id       TEXT NOT NULL,
    seen_at  INTEGER NOT NULL,
    -- As JSON.
    state    TEXT NOT NULL,
    PRIMARY KEY (key, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_by_time ON runs (seen_at);
