-- What was used, by account and period. Periods are unix milliseconds: the start of a fixed
-- window, or the end of a bucket of some milliseconds of a sliding one.
CREATE TABLE spent (
    account TEXT NOT NULL,
    period  INTEGER NOT NULL,
    amount  INTEGER NOT NULL,
    PRIMARY KEY (account, period)
) WITHOUT ROWID;

-- Slices that a process may spend from; they count as taken.
CREATE TABLE leases (
    holder   TEXT NOT NULL,
    account  TEXT NOT NULL,
    period   INTEGER NOT NULL,
    amount   INTEGER NOT NULL,
    reserved INTEGER NOT NULL,
    PRIMARY KEY (account, period, holder)
) WITHOUT ROWID;

-- The ledger: one chain, each record with the digest of the one before.
CREATE TABLE ledger (
    seq        INTEGER PRIMARY KEY,
    at         INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    request_id TEXT,
    prev       TEXT NOT NULL,
    digest     TEXT NOT NULL,
    body       TEXT NOT NULL
);
CREATE INDEX ledger_request ON ledger (request_id) WHERE request_id IS NOT NULL;
