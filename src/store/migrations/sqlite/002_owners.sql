-- Whose the answers are that providers keep, and their items: by the provider's ids.
-- `key` is empty where two keys were given the same id, `provider` where the id is ours.
-- `unanswered` has the ids of calls that the client never saw, as JSON.
CREATE TABLE owners (
    id         TEXT    NOT NULL PRIMARY KEY,
    key        TEXT    NOT NULL,
    provider   TEXT    NOT NULL,
    tokens     INTEGER,
    unanswered TEXT,
    at         INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX owners_at ON owners (at);
