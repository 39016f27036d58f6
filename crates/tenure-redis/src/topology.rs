//! What is behind an address, for tools that examine each server.

use tenure_backend::ConnectError;
use tenure_core::StoreError;

use super::cluster::{ClusterAddress, ClusterSurvey};
use super::quorum::QuorumAddress;
use super::sentinel::{SentinelAddress, SentinelSurvey};
use super::url::RedisUrl;

/// Why a survey failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SurveyError {
    /// The address or a file that it names cannot be used.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No server answered, or only with errors.
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// The servers behind an address.
///
/// ```no_run
/// # use tenure_redis::Topology;
/// # async fn example() -> Result<(), tenure_redis::SurveyError> {
/// if let Topology::Cluster(survey) = Topology::survey("redis+cluster://10.0.0.1,10.0.0.2").await? {
///     println!("slots without an owner: {:?}", survey.missing_slots());
///     println!("the election lives on {:?}", survey.shard_of("tenure:nightly-report"));
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Topology {
    /// One server.
    One(RedisUrl),
    /// A primary that sentinels name.
    Sentinels(SentinelSurvey),
    /// A cluster.
    Cluster(ClusterSurvey),
    /// The nodes of a quorum, in the order of the address. They are not asked.
    Quorum(Vec<RedisUrl>),
}

impl Topology {
    /// Asks all servers that the address names, at the same time and with a short timeout. Fails if
    /// the address or a file that it names cannot be used, and if no server can be asked.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub async fn survey(address: &str) -> Result<Self, SurveyError> {
        if SentinelAddress::is_meant(address) {
            let survey = SentinelSurvey::take(SentinelAddress::parse(address)?).await?;
            return Ok(Topology::Sentinels(survey));
        }
        if ClusterAddress::is_meant(address) {
            let survey = ClusterSurvey::take(ClusterAddress::parse(address)?).await?;
            return Ok(Topology::Cluster(survey));
        }
        if QuorumAddress::is_meant(address) {
            return Ok(Topology::Quorum(QuorumAddress::parse(address)?.nodes().to_vec()));
        }
        Ok(Topology::One(RedisUrl::parse(address)?))
    }
}
