-- Whether the webhook has taken word of a waiting call.
ALTER TABLE approvals ADD COLUMN told INTEGER NOT NULL DEFAULT 0;
CREATE INDEX approvals_to_tell ON approvals (created_at) WHERE status = 'pending' AND told = 0;
