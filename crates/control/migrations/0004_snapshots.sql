-- Snapshots of sandboxes, forks of them, and how often a sandbox was put back to one. Types as in 0001.

-- What a sandbox goes on from; NULL: its image.
ALTER TABLE sandboxes ADD COLUMN snapshot_id TEXT;
-- How often its machine has been put back to a snapshot.
ALTER TABLE sandboxes ADD COLUMN generation BIGINT NOT NULL DEFAULT 0;

CREATE INDEX sandboxes_by_snapshot ON sandboxes (snapshot_id);

-- request: JSON of the sandbox's create call, values of secrets replaced; secrets: their values, sealed for the snapshot's id.
-- state: 'pending' from before the node is asked, 'ready', 'failed', 'deleting' until the node has let it go.
-- passing: taken for a fork; goes by itself once the forks have started.
CREATE TABLE snapshots (
    id            TEXT PRIMARY KEY,
    sandbox_id    TEXT NOT NULL,
    user_id       TEXT NOT NULL REFERENCES users (id),
    team_id       TEXT REFERENCES teams (id),
    name          TEXT,
    passing       BOOLEAN NOT NULL,
    state         TEXT NOT NULL,
    request       TEXT NOT NULL,
    secrets       TEXT,
    egress        TEXT NOT NULL,
    node_image    TEXT,
    image_digest  TEXT,
    paused_us     BIGINT,
    stored_bytes  BIGINT,
    digest        TEXT,
    error         TEXT,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL
);

CREATE INDEX snapshots_by_sandbox ON snapshots (sandbox_id, created_at_ms);
CREATE INDEX snapshots_by_user ON snapshots (user_id, created_at_ms);
CREATE INDEX snapshots_by_state ON snapshots (state);
