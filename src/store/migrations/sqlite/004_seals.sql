-- What each published version of a policy says: it never changes.
CREATE TABLE seals (
    id      TEXT NOT NULL,
    version INTEGER NOT NULL,
    sha256  TEXT NOT NULL,
    status  TEXT NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (id, version)
) STRICT;
