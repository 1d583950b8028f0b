-- Volumes, and which sandboxes have them. Types as in 0001.

-- scope: 'user:ID' or 'team:ID', as in secrets. head_*: what was published last and is durable; NULL: nothing yet, so that it is empty.
-- head_digest: the image on the node that has its bytes; head_bytes: how many.
CREATE TABLE volumes (
    id                 TEXT PRIMARY KEY,
    scope              TEXT NOT NULL,
    name               TEXT NOT NULL,
    creator_id         TEXT NOT NULL REFERENCES users (id),
    head_checkpoint_id TEXT,
    head_digest        TEXT,
    head_bytes         BIGINT NOT NULL,
    created_at_ms      BIGINT NOT NULL,
    UNIQUE (scope, name)
);

-- position: place in the request's list of volumes. base_*: the head that the sandbox's disk lies on, or that it has published itself.
-- A row stays as long as its sandbox does; the volume may be deleted once the sandbox has ended.
CREATE TABLE volume_attachments (
    sandbox_id         TEXT NOT NULL REFERENCES sandboxes (id),
    position           BIGINT NOT NULL,
    volume_id          TEXT NOT NULL,
    read_only          BOOLEAN NOT NULL,
    base_checkpoint_id TEXT,
    base_digest        TEXT,
    PRIMARY KEY (sandbox_id, position)
);

CREATE INDEX volume_attachments_by_volume ON volume_attachments (volume_id);

-- The volume whose version a checkpoint is; NULL: it is of a sandbox's root disk.
ALTER TABLE checkpoints ADD COLUMN volume_id TEXT;
CREATE INDEX checkpoints_by_volume ON checkpoints (volume_id, state);
