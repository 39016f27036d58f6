//! A look at the server behind an address, for tools that examine it.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_backend::ConnectError;
use tenure_backend::clock::timer_now;
use tenure_core::StoreError;
use tokio_postgres::types::Type;

use crate::address::PostgresUrl;
use crate::dial::Route;
use crate::error::QueryError;
use crate::session::{Session, column};

/// How long all of it may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How often the round trip is measured.
const ROUND_TRIPS: usize = 11;
/// How many elections are listed. Nobody reads a list of more.
const RESOURCES_MAX: i64 = 10_000;

/// What a server says about itself.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Survey {
    /// Its version.
    pub version: String,
    /// Settings that matter, as `SHOW` tells them.
    pub settings: BTreeMap<String, String>,
    /// How many standbys follow it, and how many of them a commit waits for. `None` where this
    /// login may not know.
    pub standbys: Option<(usize, usize)>,
    /// Whether the server itself is at the other end, and not a pooler.
    pub is_direct: bool,
    /// The median of some round trips.
    pub round_trip: Duration,
    /// Its clock, in microseconds since 1970.
    pub clock: u64,
    /// How many connections are open, and how many there may be.
    pub connections: (usize, usize),
    /// Rights that taking part needs and this login lacks: what on which table.
    pub missing_rights: Vec<String>,
}

const SETTINGS: &str = "\
SELECT name, current_setting(name) FROM unnest(ARRAY['server_version', 'fsync', \
'synchronous_commit', 'full_page_writes', 'synchronous_standby_names', 'max_connections']) AS name";
const COUNTS: &str = "\
SELECT (SELECT count(*) FROM pg_stat_activity WHERE datid IS NOT NULL),
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
       (SELECT count(*) FROM pg_stat_replication),
       (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')),
       pg_has_role(current_user, 'pg_monitor', 'USAGE')";
const RIGHTS: &str = "\
SELECT right_ || ' ON tenure.' || name
  FROM (VALUES ('life', 'SELECT'), ('life', 'INSERT'), ('life', 'UPDATE'),
               ('lease', 'SELECT'), ('lease', 'INSERT'), ('lease', 'UPDATE'),
               ('members', 'SELECT'), ('members', 'INSERT'), ('members', 'UPDATE'),
               ('hint', 'SELECT'), ('hint', 'INSERT'), ('hint', 'UPDATE'),
               ('history', 'SELECT'), ('history', 'INSERT'), ('history', 'DELETE'))
       AS needed (name, right_)
 WHERE NOT has_table_privilege('tenure.' || name, right_)";

/// Looks at the server that takes writes. Changes nothing.
pub async fn survey(url: &PostgresUrl) -> Result<Survey, StoreError> {
    on(url, async |session| {
        let mut survey = Survey { is_direct: session.is_direct, ..Survey::default() };
        for row in session.query(SETTINGS, &[]).await? {
            survey.settings.insert(column(&row, 0)?, column(&row, 1)?);
        }
        survey.version = survey.settings.remove("server_version").unwrap_or_default();
        let most = survey.settings.remove("max_connections").and_then(|max| max.parse().ok());
        let rows = session.query(COUNTS, &[]).await?;
        let row = rows.first().ok_or_else(crate::error::no_row)?;
        let count =
            |at: usize| column::<i64>(row, at).map(|count| usize::try_from(count).unwrap_or(0));
        survey.connections = (count(0)?, most.unwrap_or(0));
        survey.clock = u64::try_from(column::<i64>(row, 1)?).unwrap_or(0);
        let may_know: bool = column(row, 4)?;
        survey.standbys = may_know.then_some((count(2)?, count(3)?));
        let rows = session.query(RIGHTS, &[]).await?;
        survey.missing_rights = rows.iter().map(|row| column(row, 0)).collect::<Result<_, _>>()?;
        survey.round_trip = round_trip(session).await?;
        Ok(survey)
    })
    .await
}

async fn round_trip(session: &Session) -> Result<Duration, QueryError> {
    let mut trips = Vec::new();
    for _ in 0..ROUND_TRIPS {
        let began_at = timer_now();
        session.query("SELECT 1", &[]).await?;
        trips.push(timer_now().saturating_duration_since(began_at));
    }
    trips.sort_unstable();
    Ok(trips[ROUND_TRIPS / 2])
}

/// The keys of all elections whose key begins with `prefix`, each with whether it has ticks of a
/// job.
pub async fn resources(url: &PostgresUrl, prefix: &str) -> Result<Vec<(String, bool)>, StoreError> {
    const STATEMENT: &str = "\
SELECT resource, strpos(content, E'\\nkey\\ttick') > 0 FROM tenure.lease
 WHERE starts_with(resource, $1) ORDER BY resource LIMIT $2";
    on(url, async |session| {
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&prefix, Type::TEXT), (&RESOURCES_MAX, Type::INT8)];
        let rows = session.query(STATEMENT, &parameters).await?;
        rows.iter().map(|row| Ok((column(row, 0)?, column(row, 1)?))).collect()
    })
    .await
}

async fn on<T>(
    url: &PostgresUrl,
    work: impl AsyncFnOnce(&Session) -> Result<T, QueryError>,
) -> Result<T, StoreError> {
    let route = Route::to(url.clone())
        .map_err(|error: ConnectError| StoreError::wrong_address(error.to_string()))?;
    let looking = async {
        let session = route.open(None).await?;
        work(&session).await.map_err(|failed| failed.explained(url))
    };
    let silence = || Err(StoreError::timed_out(TIMEOUT));
    tokio::time::timeout(TIMEOUT, looking).await.unwrap_or_else(|_| silence())
}
