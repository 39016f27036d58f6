//! A primary, two replicas and three sentinels, for clients that are programs.

use std::fs;
use std::path::PathBuf;

use super::install::folder_of;
use super::servers::{Server, Side};
use crate::command::Failure;

const COUNT: usize = 3;

/// All of one kind; they end with their value.
pub(super) struct Sentinels {
    _servers: Vec<Server>,
    sentinels: Vec<Server>,
}

impl Sentinels {
    pub(super) fn start(side: Side) -> Result<Self, Failure> {
        let primary = Server::start_with(side, "store-0", &[])?;
        let port = primary.port().to_string();
        let replica_of = ["--replicaof", "127.0.0.1", &port];
        let mut servers = vec![primary];
        for index in 1..COUNT {
            servers.push(Server::start_with(side, &format!("store-{index}"), &replica_of)?);
        }
        let lines = format!(
            "sentinel monitor main 127.0.0.1 {port} 2\nsentinel down-after-milliseconds main \
             1500\nsentinel failover-timeout main 10000\nsentinel parallel-syncs main 2\n"
        );
        let start = |index: usize| {
            let file = write_file(side, index, &lines)?;
            Server::start_sentinel(side, &file)
        };
        let sentinels = (0..COUNT).map(start).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Self { _servers: servers, sentinels })
    }

    /// The ports of the sentinels.
    pub(super) fn ports(&self) -> Vec<u16> {
        self.sentinels.iter().map(Server::port).collect()
    }
}

fn write_file(side: Side, index: usize, lines: &str) -> Result<PathBuf, Failure> {
    let folder = folder_of("data").join(side.folder(&format!("sentinel-{index}")));
    let path = folder.join("sentinel.conf");
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, lines));
    written.map_err(|error| Failure::Failed(format!("compat: {}: {error}", path.display())))?;
    Ok(path)
}
