-- Disks of sandboxes at one moment, which outlive the sandboxes. Types as in 0001.

-- sandbox_id: no reference, since sandboxes are dropped some days after their end. parent_id: what the disk was a checkpoint of before.
-- state: 'pending', 'durable', 'failed', 'deleting' (the node is to let it go), 'deleted' (it has; kept for some days).
-- digest and sizes: of a durable one.
CREATE TABLE checkpoints (
    id              TEXT PRIMARY KEY,
    sandbox_id      TEXT NOT NULL,
    user_id         TEXT NOT NULL REFERENCES users (id),
    team_id         TEXT REFERENCES teams (id),
    parent_id       TEXT,
    depth           BIGINT NOT NULL,
    docker_image    TEXT NOT NULL,
    state           TEXT NOT NULL,
    digest          TEXT,
    disk_size_bytes BIGINT,
    stored_bytes    BIGINT,
    occupied_bytes  BIGINT,
    error           TEXT,
    created_at_ms   BIGINT NOT NULL,
    updated_at_ms   BIGINT NOT NULL
);

CREATE INDEX checkpoints_by_sandbox ON checkpoints (sandbox_id, depth);
CREATE INDEX checkpoints_by_state ON checkpoints (state, updated_at_ms);
