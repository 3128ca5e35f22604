-- What was used and refused by the hour (hours since 1970, UTC), added up as records are written:
-- nobody would want to read millions of records to draw a curve.
CREATE TABLE usage_hours (
    hour     INTEGER NOT NULL,
    key      TEXT    NOT NULL,
    model    TEXT    NOT NULL,
    requests INTEGER NOT NULL,
    tokens   INTEGER NOT NULL,
    cost     INTEGER NOT NULL,
    PRIMARY KEY (hour, key, model)
) WITHOUT ROWID;

CREATE TABLE refusal_hours (
    hour  INTEGER NOT NULL,
    key   TEXT    NOT NULL,
    code  TEXT    NOT NULL,
    rule  TEXT    NOT NULL,
    count INTEGER NOT NULL,
    PRIMARY KEY (hour, key, code, rule)
) WITHOUT ROWID;

INSERT INTO usage_hours
SELECT (body ->> 'at') / 3600000, COALESCE(body ->> 'key', ''), body ->> 'resolved_model',
       COUNT(*), SUM((body ->> 'input_tokens') + (body ->> 'output_tokens')),
       SUM(body ->> 'cost_nano_usd')
FROM ledger WHERE body ->> 'kind' = 'request_settled' GROUP BY 1, 2, 3;

INSERT INTO refusal_hours
SELECT (body ->> 'at') / 3600000, COALESCE(body ->> 'key', ''), body ->> 'code',
       COALESCE(body ->> 'rule', ''), SUM(COALESCE(body ->> 'count', 1))
FROM ledger WHERE body ->> 'kind' IN ('request_refused', 'refusals_summed') GROUP BY 1, 2, 3, 4;
