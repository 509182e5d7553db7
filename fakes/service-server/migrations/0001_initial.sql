-- Tables of the simulated service. Where the real service has the same concept, tables and columns have its names and types
-- (identifiers are text there too), so that an observer reads both alike. `body` is the whole row as JSON text and is what
-- the service itself reads back; the other columns are for observers, except those that a comment names.

CREATE TABLE clusters (
    id                            text PRIMARY KEY,
    name                          text,
    openshift_version             text,
    status                        text,
    status_info                   text,
    status_updated_at             timestamptz,
    validations_info              text,
    progress_total_percentage     bigint,
    progress_finalizing_stage     text,
    install_started_at            timestamptz,
    install_completed_at          timestamptz,
    body                          text NOT NULL
);

CREATE TABLE infra_envs (
    id                            text PRIMARY KEY,
    name                          text,
    cluster_id                    text,
    body                          text NOT NULL
);

-- checked_in_at and "timestamp" are the truth, not a copy: a poll changes them and leaves the body alone.
CREATE TABLE hosts (
    id                               text NOT NULL,
    infra_env_id                     text NOT NULL,
    cluster_id                       text,
    status                           text,
    status_info                      text,
    status_updated_at                timestamptz,
    validations_info                 text,
    progress_current_stage           text,
    progress_progress_info           text,
    progress_installation_percentage bigint,
    progress_stage_started_at        timestamptz,
    progress_stage_updated_at        timestamptz,
    role                             text,
    suggested_role                   text,
    bootstrap                        boolean,
    requested_hostname               text,
    checked_in_at                    timestamptz,
    "timestamp"                      bigint,
    body                             text NOT NULL,
    PRIMARY KEY (id, infra_env_id)
) WITH (fillfactor = 70);  -- room on each page, so that a heartbeat needs no change of an index

CREATE TABLE monitored_operators (
    cluster_id                    text NOT NULL,
    name                          text NOT NULL,
    version                       text,
    operator_type                 text,
    status                        text,
    status_info                   text,
    status_updated_at             timestamptz,
    PRIMARY KEY (cluster_id, name)
);

-- id is the position in the order of writing, from 0.
CREATE TABLE events (
    id                            bigint PRIMARY KEY,
    name                          text,
    severity                      text,
    category                      text,
    cluster_id                    text,
    host_id                       text,
    infra_env_id                  text,
    event_time                    timestamptz,
    message                       text,
    props                         text,
    request_id                    text
);

CREATE TABLE files (
    key                           text PRIMARY KEY,
    bytes                         bytea NOT NULL
);
-- Ignition configs and logs are compressed or nearly random already.
ALTER TABLE files ALTER COLUMN bytes SET STORAGE EXTERNAL;
