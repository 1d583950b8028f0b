-- Images that people and teams own, and the builds that make them. Types as in 0001.

-- Bytes that a tag leads to. A row is here from before the node is told to keep them until after it was told to let them go.
CREATE TABLE image_artifacts (
    digest        TEXT PRIMARY KEY,
    size_bytes    BIGINT NOT NULL,
    created_at_ms BIGINT NOT NULL
);

-- A tag. owner: 'user:ID', 'team:ID' or 'platform'. digest: NULL until its first build has ended well.
-- from_hub: whether it is Docker Hub's under its own name, which anyone may fetch anew; FALSE once an administrator put something else there.
CREATE TABLE images (
    id            TEXT PRIMARY KEY,
    owner         TEXT NOT NULL,
    name          TEXT NOT NULL,
    tag           TEXT NOT NULL,
    visibility    TEXT NOT NULL,
    digest        TEXT REFERENCES image_artifacts (digest),
    creator_id    TEXT NOT NULL REFERENCES users (id),
    last_build_id TEXT,
    from_hub      BOOLEAN NOT NULL,
    created_at_ms BIGINT NOT NULL,
    pushed_at_ms  BIGINT,
    UNIQUE (owner, name, tag)
);

CREATE INDEX images_by_digest ON images (digest);

-- state: see builds/machine.rs. visibility: what the tag gets when the build ends well; NULL leaves it.
-- source: reference to pull; NULL for a build of a Dockerfile. build_args: JSON object.
CREATE TABLE image_builds (
    id            TEXT PRIMARY KEY,
    image_id      TEXT NOT NULL,
    user_id       TEXT NOT NULL REFERENCES users (id),
    owner         TEXT NOT NULL,
    name          TEXT NOT NULL,
    tag           TEXT NOT NULL,
    visibility    TEXT,
    source        TEXT,
    dockerfile    TEXT,
    build_args    TEXT NOT NULL,
    state         TEXT NOT NULL,
    attempts      BIGINT NOT NULL,
    error_code    TEXT,
    error_message TEXT,
    digest        TEXT,
    upload_by_ms  BIGINT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    queued_at_ms  BIGINT,
    started_at_ms BIGINT,
    ended_at_ms   BIGINT
);

CREATE INDEX image_builds_by_state ON image_builds (state, created_at_ms);
CREATE INDEX image_builds_by_image ON image_builds (image_id);
CREATE INDEX image_builds_by_user ON image_builds (user_id, created_at_ms);
CREATE INDEX image_builds_by_end ON image_builds (ended_at_ms);

-- The image that the node runs for a sandbox, where that is not the reference it was asked for: the tag may move, this does not.
ALTER TABLE sandboxes ADD COLUMN node_image TEXT;
CREATE INDEX sandboxes_by_node_image ON sandboxes (node_image);

-- Owns the sandboxes in which Dockerfiles are built. Nobody can log in as it.
INSERT INTO users (id, slug, name, email, is_admin, created_at_ms)
VALUES ('ubuilder', '_builder', 'Image builder', 'builder@localhost', FALSE, 0);
