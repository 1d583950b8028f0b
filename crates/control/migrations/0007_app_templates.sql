-- App templates: what is to be started once, snapshotted, and gone on from by every create like it. Types as in 0001.

-- The snapshot of the app template that a sandbox went on from.
ALTER TABLE sandboxes ADD COLUMN template_id TEXT;

CREATE INDEX sandboxes_by_template ON sandboxes (template_id, created_at_ms);

-- request: JSON of the create call that it stands for; ready: JSON of an argv that exits with 0 once it may be taken; NULL: at once.
-- state: 'making' from before the first effect, 'ready', 'failed', 'idle' when it was dropped for lack of use, 'deleting'.
-- sandbox_id: what it is being made in; snapshot_id: what was taken of it, from before the node is asked.
CREATE TABLE app_templates (
    id               TEXT PRIMARY KEY,
    user_id          TEXT NOT NULL REFERENCES users (id),
    team_id          TEXT REFERENCES teams (id),
    name             TEXT NOT NULL,
    request          TEXT NOT NULL,
    ready            TEXT,
    ready_within_ms  BIGINT NOT NULL,
    state            TEXT NOT NULL,
    sandbox_id       TEXT,
    snapshot_id      TEXT,
    image_digest     TEXT,
    error            TEXT,
    created_at_ms    BIGINT NOT NULL,
    updated_at_ms    BIGINT NOT NULL,
    used_at_ms       BIGINT NOT NULL
);

CREATE INDEX app_templates_by_user ON app_templates (user_id, created_at_ms);
