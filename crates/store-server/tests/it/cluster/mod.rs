//! A node of a cluster, alone or among others in this process.

mod hostile;
mod nodes;
mod same_words;

use store_server::{Server, ServerBuilder};
use testkit::{GENEROUS, TempFolder, wait_until};

use crate::connection::Connection;
use crate::replication::support::text;

/// A node that starts serves nobody for about so long. Longer silence is borne once it serves.
const TIMEOUT_MS: &str = "2000";

/// A node with a folder of its own.
struct Node {
    server: Server,
    _folder: TempFolder,
}

impl Node {
    fn start(settings: &[(&str, &str)]) -> Self {
        Self::start_on(Server::builder().any_port(), settings)
    }

    /// With a port for TLS, too.
    fn start_encrypted(settings: &[(&str, &str)]) -> Self {
        Self::start_on(Server::builder().any_port().any_tls_port(), settings)
    }

    fn start_on(builder: ServerBuilder, settings: &[(&str, &str)]) -> Self {
        let folder = TempFolder::create();
        let builder = builder
            .setting("dir", folder.path().to_str().unwrap())
            .setting("cluster-enabled", "yes")
            .setting("cluster-node-timeout", TIMEOUT_MS)
            .setting("enable-debug-command", "yes")
            .setting("repl-diskless-sync-delay", "0");
        let add =
            |builder: ServerBuilder, (name, value): &(&str, &str)| builder.setting(name, value);
        let server = settings.iter().fold(builder, add).start().unwrap();
        Self { server, _folder: folder }
    }

    /// A node that serves all slots by itself.
    fn alone(settings: &[(&str, &str)]) -> Self {
        let node = Self::start(settings);
        serve_all(&mut node.connect());
        node
    }

    fn connect(&self) -> Connection {
        Connection::tcp(self.server.port().unwrap())
    }

    fn id(&self) -> String {
        text(&self.connect().words("CLUSTER MYID"))
    }

    /// What is told of its own address: `ip:port@bus`.
    fn bus_port(&self) -> u16 {
        let nodes = text(&self.connect().words("CLUSTER NODES"));
        let own = nodes.lines().find(|line| line.contains("myself")).unwrap();
        own.split(['@', ',', ' ']).nth(2).and_then(|port| port.parse().ok()).unwrap()
    }

    /// Introduces another node. On a busy machine a handshake may take longer than it lives.
    fn meet(&self, other: &Node) {
        let port = match text(&other.connect().words("CONFIG GET tls-cluster")).as_str() {
            said if said.contains("yes") => other.server.tls_port(),
            _ => other.server.port(),
        };
        let (port, bus) = (port.unwrap(), other.bus_port());
        let id = self.id();
        wait_until("the nodes to know each other", GENEROUS, || {
            let said = self.connect().words(&format!("CLUSTER MEET 127.0.0.1 {port} {bus}"));
            assert_eq!(text(&said), "OK");
            std::thread::sleep(std::time::Duration::from_millis(100));
            let lines = text(&other.connect().words("CLUSTER NODES"));
            lines.lines().any(|line| line.starts_with(&id) && line.contains(" connected"))
        });
    }

    fn knows(&self, count: usize) -> bool {
        let nodes = text(&self.connect().words("CLUSTER NODES"));
        let is_known = |line: &&str| !line.contains("handshake") && line.contains(" connected");
        nodes.lines().filter(is_known).count() == count
    }
}

fn serve_all(connection: &mut Connection) {
    assert_eq!(text(&connection.words("CLUSTER ADDSLOTSRANGE 0 16383")), "OK");
    wait_for_state(connection, "ok");
}

fn wait_for_state(connection: &mut Connection, state: &str) {
    let wanted = format!("cluster_state:{state}");
    wait_until("the state of the cluster", GENEROUS, || {
        text(&connection.words("CLUSTER INFO")).contains(&wanted)
    });
    connection.words("CONFIG SET cluster-node-timeout 60000");
}
