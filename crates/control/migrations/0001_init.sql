-- Types are those that SQLite and PostgreSQL share: TEXT, BIGINT, BOOLEAN. Times are milliseconds since 1970.

CREATE TABLE users (
    id            TEXT PRIMARY KEY,
    slug          TEXT NOT NULL UNIQUE,
    name          TEXT NOT NULL,
    email         TEXT NOT NULL,
    is_admin      BOOLEAN NOT NULL,
    created_at_ms BIGINT NOT NULL
);

-- The key itself is never stored: hash is SHA-256 in hex of a key with 192 random bits.
CREATE TABLE api_keys (
    hash          TEXT PRIMARY KEY,
    user_id       TEXT NOT NULL REFERENCES users (id),
    -- JSON of the key's own limits.
    limits        TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    revoked_at_ms BIGINT
);

CREATE TABLE teams (
    id            TEXT PRIMARY KEY,
    slug          TEXT NOT NULL UNIQUE,
    name          TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE team_members (
    team_id      TEXT NOT NULL REFERENCES teams (id),
    user_id      TEXT NOT NULL REFERENCES users (id),
    role         TEXT NOT NULL,
    joined_at_ms BIGINT NOT NULL,
    PRIMARY KEY (team_id, user_id)
);

CREATE INDEX team_members_by_user ON team_members (user_id);

-- request: JSON of the create call, values of secrets replaced; secrets: their sealed values.
-- intent: 'run' or 'end'. placement: 'queued', 'placed', 'cleared', 'gone' (see store/row.rs).
-- version: grows with every update, so that a writer sees that another was faster.
CREATE TABLE sandboxes (
    id                 TEXT PRIMARY KEY,
    user_id            TEXT NOT NULL REFERENCES users (id),
    team_id            TEXT REFERENCES teams (id),
    -- For the limits of keys.
    key_hash           TEXT NOT NULL,
    vcpus              BIGINT NOT NULL,
    request            TEXT NOT NULL,
    secrets            TEXT,
    intent             TEXT NOT NULL,
    placement          TEXT NOT NULL,
    status             TEXT NOT NULL,
    image_build_id     TEXT,
    image_digest       TEXT,
    egress             TEXT NOT NULL,
    egress_generation  BIGINT NOT NULL,
    egress_applied     BIGINT NOT NULL,
    error_type         TEXT,
    error_message      TEXT,
    termination_reason TEXT,
    infra_fault        BOOLEAN NOT NULL,
    exit_code          BIGINT,
    logs               TEXT,
    created_at_ms      BIGINT NOT NULL,
    updated_at_ms      BIGINT NOT NULL,
    started_at_ms      BIGINT,
    ended_at_ms        BIGINT,
    version            BIGINT NOT NULL
);

CREATE INDEX sandboxes_by_user ON sandboxes (user_id, created_at_ms);
CREATE INDEX sandboxes_by_team ON sandboxes (team_id, created_at_ms);
CREATE INDEX sandboxes_by_key ON sandboxes (key_hash, created_at_ms);
CREATE INDEX sandboxes_by_placement ON sandboxes (placement, created_at_ms);
CREATE INDEX sandboxes_by_end ON sandboxes (ended_at_ms);
CREATE INDEX sandboxes_by_image_build ON sandboxes (image_build_id);

CREATE TABLE sandbox_labels (
    sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
    label      TEXT NOT NULL,
    PRIMARY KEY (sandbox_id, label)
);

CREATE INDEX sandbox_labels_by_label ON sandbox_labels (label, sandbox_id);

-- fingerprint: keyed hash of the request, so that one key with two requests is seen.
CREATE TABLE idempotency_keys (
    user_id         TEXT NOT NULL REFERENCES users (id),
    idempotency_key TEXT NOT NULL,
    fingerprint     TEXT NOT NULL,
    sandbox_id      TEXT NOT NULL,
    created_at_ms   BIGINT NOT NULL,
    PRIMARY KEY (user_id, idempotency_key)
);

CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at_ms);

-- A person's or a team's own secrets. scope: 'user:ID' or 'team:ID', since NULL is equal to nothing in a unique index.
CREATE TABLE secrets (
    id            TEXT PRIMARY KEY,
    scope         TEXT NOT NULL,
    name          TEXT NOT NULL,
    description   TEXT,
    is_file       BOOLEAN NOT NULL,
    sealed        TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    UNIQUE (scope, name)
);

-- Logins that wait for approval or for the client to fetch its key. result: the key, encrypted for the client.
CREATE TABLE login_challenges (
    code              TEXT PRIMARY KEY,
    status_token_hash TEXT NOT NULL,
    public_key        TEXT NOT NULL,
    limits            TEXT NOT NULL,
    result            TEXT,
    created_at_ms     BIGINT NOT NULL
);
