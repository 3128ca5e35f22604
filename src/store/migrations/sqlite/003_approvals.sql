-- Answers of models that wait for a person, and what people decide about their calls.
CREATE TABLE parked (
    id           TEXT PRIMARY KEY,
    -- SHA-256 of whose conversation it answers, and under which policy.
    conversation TEXT NOT NULL,
    request_id   TEXT NOT NULL,
    provider     TEXT NOT NULL,
    model        TEXT NOT NULL,
    streamed     INTEGER NOT NULL,
    -- As the provider gave it.
    answer       BLOB NOT NULL,
    expires_at   INTEGER NOT NULL
) STRICT;
CREATE INDEX parked_by_conversation ON parked (conversation);

CREATE TABLE approvals (
    id         TEXT PRIMARY KEY,
    parked     TEXT NOT NULL,
    place      INTEGER NOT NULL,
    request_id TEXT NOT NULL,
    key        TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    run        TEXT,
    policy     TEXT NOT NULL,
    tool       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    rule       TEXT NOT NULL,
    -- For whoever decides; gone once that is done.
    arguments  TEXT,
    status     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    decided_at INTEGER,
    decided_by TEXT,
    reason     TEXT,
    -- Whether the status stands in the ledger.
    noted      INTEGER NOT NULL
) STRICT;
CREATE INDEX approvals_by_parked ON approvals (parked);
CREATE INDEX approvals_to_note ON approvals (id) WHERE noted = 0;
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE status = 'pending';
