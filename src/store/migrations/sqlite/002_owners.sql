-- Whose the answers are that providers keep, and their items: by the provider's ids.
-- `key` is empty where two keys were given the same id.
CREATE TABLE owners (
    id       TEXT    NOT NULL PRIMARY KEY,
    key      TEXT    NOT NULL,
    provider TEXT    NOT NULL,
    tokens   INTEGER,
    at       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX owners_at ON owners (at);
