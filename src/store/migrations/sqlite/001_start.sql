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

-- The ledger: one chain. A record's digest covers the digest of the one before, its number and
-- its text. What is asked for by name is read out of the text (body ->> 'kind'): a column of its
-- own, even a computed one, would cost every insert a reading of the JSON.
CREATE TABLE ledger (
    seq    INTEGER PRIMARY KEY,
    digest BLOB NOT NULL,
    body   TEXT NOT NULL
);
