-- What Tenure keeps in a PostgreSQL database: one schema, format 1. Nothing outside of it is touched.
CREATE SCHEMA IF NOT EXISTS tenure;
COMMENT ON SCHEMA tenure IS 'Tenure, format 1';

-- Which life of this data it is. Data that came back from a copy has a row that does not fit any
-- more: `facts` are about the server, and `written_by` is the transaction that really wrote the row.
CREATE TABLE tenure.life (
    one        boolean     PRIMARY KEY DEFAULT true CHECK (one),
    format     integer     NOT NULL,
    facts      text        NOT NULL,
    nonce      text        NOT NULL,
    since      timestamptz NOT NULL,
    written_by xid8        NOT NULL
);

-- The lease of each election, and all that is decided with it.
CREATE TABLE tenure.lease (
    resource   text   PRIMARY KEY,
    version    bigint NOT NULL,
    content    text   NOT NULL,
    written_by xid8   NOT NULL
) WITH (fillfactor = 50);

-- Who takes part.
CREATE TABLE tenure.members (
    resource text   PRIMARY KEY,
    version  bigint NOT NULL,
    content  text   NOT NULL
) WITH (fillfactor = 50);

-- The latest events of each election.
CREATE TABLE tenure.history (
    resource text   NOT NULL,
    number   bigint GENERATED ALWAYS AS IDENTITY,
    line     text   NOT NULL,
    PRIMARY KEY (resource, number)
);

-- The latest hints about each election, for those that cannot LISTEN.
CREATE TABLE tenure.hint (
    resource text   PRIMARY KEY,
    number   bigint NOT NULL,
    told     text[] NOT NULL
) WITH (fillfactor = 50);

-- The fences of programs' own transactions: apart from the leases, so that acquiring never waits
-- for a transaction.
CREATE TABLE tenure.fence (
    resource text   PRIMARY KEY,
    token    bigint NOT NULL
) WITH (fillfactor = 50);

-- Begins the fenced part of the transaction that it is called in: nothing of it is committed unless
-- `token` is at least as high as every token that was here before. While it is open, nobody else
-- passes this fence; one that stops for longer than `lease_left` is ended by the server.
CREATE FUNCTION tenure.enter(resource text, token bigint, lease_left interval) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    left_ms bigint := floor(extract(epoch FROM lease_left) * 1000);
BEGIN
    IF left_ms < 1 THEN
        RAISE EXCEPTION 'the lease of % is over', resource
            USING ERRCODE = 'TE002', HINT = 'begin a transaction only while this instance leads';
    END IF;
    PERFORM set_config('idle_in_transaction_session_timeout', left_ms || 'ms', true);
    INSERT INTO tenure.fence AS known VALUES (enter.resource, enter.token)
    ON CONFLICT ON CONSTRAINT fence_pkey DO UPDATE SET token = excluded.token
    WHERE known.token <= excluded.token;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'token % of % is fenced off: a later leader was here', token, resource
            USING ERRCODE = 'TE001', HINT = 'stop: another instance leads';
    END IF;
END $$;
REVOKE ALL ON FUNCTION tenure.enter FROM PUBLIC;
