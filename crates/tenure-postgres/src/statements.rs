//! The statements of the protocol. Each is a transaction of its own and has no name, so that any
//! pooler may carry it.

use std::sync::LazyLock;

/// What tells one life of the data from another, beside what is written in it. A copy of the folder
/// is started again; a standby is promoted on a timeline of its own; a dump is loaded into other
/// files; a database that was made from this one has another number.
const FACTS: &str = "\
(SELECT system_identifier::text FROM pg_control_system())
 || '-' || CASE WHEN pg_is_in_recovery() THEN 'standby'
                ELSE substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) END
 || '-' || (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint
 || '-' || (SELECT oid::text FROM pg_database WHERE datname = current_database())
 || '-' || coalesce(pg_relation_filenode('tenure.life'::regclass)::text, '')
 || '-' || coalesce(pg_relation_filenode('tenure.lease'::regclass)::text, '')";

/// The server's clock in microseconds since 1970.
const CLOCK: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// `$1` resource, `$2` whether members are wanted.
pub(crate) static READ: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SELECT pg_is_in_recovery(),
       {CLOCK},
       {FACTS},
       CASE WHEN pg_is_in_recovery() THEN 0
            ELSE (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint END,
       current_setting('synchronous_standby_names'),
       life.format, life.facts, life.nonce,
       (extract(epoch FROM life.since) * 1000000)::bigint,
       life.xmin = life.written_by::xid,
       lease.version, lease.content,
       CASE WHEN lease.xmin <> lease.written_by::xid THEN lease.xmin::text END,
       members.version, members.content
  FROM (SELECT) AS one
  LEFT JOIN tenure.life ON true
  LEFT JOIN tenure.lease ON lease.resource = $1
  LEFT JOIN tenure.members ON $2 AND members.resource = $1"
    )
});

/// `$1` resource, `$2` how many lines at the most; newest first.
pub(crate) const READ_HISTORY: &str =
    "SELECT line FROM tenure.history WHERE resource = $1 ORDER BY number DESC LIMIT $2";

/// `$1` nonce, `$2` the one before (empty where there is no row), `$3` synchronous_commit,
/// `$4` how long to wait for a lock.
pub(crate) static MARK: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH setting AS (
    SELECT set_config('synchronous_commit', $3, true), set_config('lock_timeout', $4, true)
)
INSERT INTO tenure.life AS known (one, format, facts, nonce, since, written_by)
SELECT true, 1, {FACTS}, $1, clock_timestamp(), pg_current_xact_id() FROM setting
ON CONFLICT (one) DO UPDATE
   SET facts = excluded.facts, nonce = excluded.nonce, since = excluded.since,
       written_by = excluded.written_by
 WHERE known.nonce = $2"
    )
});

/// Begins the first life, in the transaction that makes the tables: whoever takes part soon after
/// need not wait.
pub(crate) fn first_mark() -> String {
    format!(
        "INSERT INTO tenure.life (format, facts, nonce, since, written_by)
SELECT 1, {FACTS}, md5(random()::text || clock_timestamp()), clock_timestamp(),
       pg_current_xact_id();\n"
    )
}

/// How many lines of history are kept per election.
const HISTORY_KEPT: u32 = 1000;

/// `$1` resource, `$2` and `$3` version and text of the lease, `$4` and `$5` of the members (no
/// text: not written), `$6` lines of history, `$7` hints, `$8` facts, `$9` nonce, `$10`
/// synchronous_commit, `$11` how long to wait for a lock.
///
/// A version is never used again, not even after a row was deleted or came back from a backup: it
/// goes with the clock. Rows are always locked in the order of this text.
pub(crate) static WRITE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "WITH setting AS (
    SELECT set_config('synchronous_commit', $10, true), set_config('lock_timeout', $11, true)
      FROM tenure.life
     WHERE life.nonce = $9 AND life.xmin = life.written_by::xid AND {FACTS} = $8
       AND NOT pg_is_in_recovery()
), wrote_lease AS (
    INSERT INTO tenure.lease AS known (resource, version, content, written_by)
    SELECT $1, greatest($2 + 1, {CLOCK}), $3, pg_current_xact_id() FROM setting
     WHERE $3 IS NOT NULL
       AND ($2 = 0 OR EXISTS (SELECT FROM tenure.lease WHERE resource = $1))
    ON CONFLICT (resource) DO UPDATE
       SET version = excluded.version, content = excluded.content,
           written_by = excluded.written_by
     WHERE known.version = $2
    RETURNING 1
), wrote_members AS (
    INSERT INTO tenure.members AS known (resource, version, content)
    SELECT $1, greatest($4 + 1, {CLOCK}), $5 FROM setting
     WHERE $5 IS NOT NULL AND ($3 IS NULL OR EXISTS (SELECT FROM wrote_lease))
    ON CONFLICT (resource) DO UPDATE
       SET version = excluded.version, content = excluded.content
     WHERE known.version = $4
    RETURNING 1
), done AS (
    SELECT FROM setting
     WHERE CASE WHEN $3 IS NOT NULL THEN EXISTS (SELECT FROM wrote_lease)
                WHEN $5 IS NOT NULL THEN EXISTS (SELECT FROM wrote_members)
                ELSE true END
), wrote_history AS (
    INSERT INTO tenure.history (resource, line)
    SELECT $1, line FROM done, unnest($6) WITH ORDINALITY AS lines (line, place) ORDER BY place
), cut_history AS (
    DELETE FROM tenure.history
     WHERE resource = $1 AND cardinality($6) > 0 AND EXISTS (SELECT FROM done)
       AND number <= (SELECT number FROM tenure.history WHERE resource = $1
                       ORDER BY number DESC OFFSET {HISTORY_KEPT} LIMIT 1)
), wrote_hint AS (
    INSERT INTO tenure.hint AS known (resource, number, told)
    SELECT $1, 1, $7 FROM done WHERE cardinality($7) > 0
    ON CONFLICT (resource) DO UPDATE
       SET number = known.number + 1, told = excluded.told
    RETURNING number
), told AS (
    SELECT pg_notify('{CHANNEL}', wrote_hint.number || E'\\t' || $1 || E'\\t' || hint)
      FROM wrote_hint, unnest($7) AS hint
)
SELECT EXISTS (SELECT FROM done), (SELECT count(*) FROM told)"
    )
});

/// The channel of all hints of a database.
pub(crate) const CHANNEL: &str = "tenure";

/// `$1` resources.
pub(crate) const READ_HINTS: &str =
    "SELECT resource, number, told FROM tenure.hint WHERE resource = ANY ($1)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_statement_are_counted_right() {
        for (statement, count) in [(&*READ, 2), (&*MARK, 4), (&*WRITE, 11)] {
            assert!(statement.contains(&format!("${count}")), "{statement}");
            assert!(!statement.contains(&format!("${}", count + 1)), "{statement}");
        }
    }
}
