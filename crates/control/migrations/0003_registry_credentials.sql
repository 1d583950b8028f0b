-- Saved logins at image registries. scope: 'user:ID' or 'team:ID', as in secrets. sealed: the password.
CREATE TABLE registry_credentials (
    id            TEXT PRIMARY KEY,
    scope         TEXT NOT NULL,
    server        TEXT NOT NULL,
    username      TEXT NOT NULL,
    sealed        TEXT NOT NULL,
    created_at_ms BIGINT NOT NULL,
    updated_at_ms BIGINT NOT NULL,
    UNIQUE (scope, server)
);
