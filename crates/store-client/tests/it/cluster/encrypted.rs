//! Nodes of ours that speak TLS, to each other and to clients.

use store_client::redis::{self, Cmd};
use store_client::{ClusterClient, ClusterError};
use testkit::{Certificates, ClusterGroup, Host, ServerProgram};

/// A client of the first node that trusts this authority.
fn client(group: &ClusterGroup, trusted: &Certificates) -> redis::Client {
    let authority = std::fs::read(trusted.file("ca.pem")).unwrap();
    let address = format!("rediss://localhost:{}", group.server(0).tls_port());
    let trusted = redis::TlsCertificates { client_tls: None, root_cert: Some(authority) };
    redis::Client::build_with_tls(address, trusted).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_of_ours_is_used_and_fails_over_under_tls() {
    let certificates = Certificates::issue();
    let hosts = vec![Host::loopback(); 6];
    let group = ClusterGroup::start_mixed_on(&hosts, &vec![ServerProgram::own(); 6], |builder| {
        builder.tls(certificates.settings("localhost", "no")).args([
            "--tls-cluster",
            "yes",
            "--tls-replication",
            "yes",
            "--cluster-announce-hostname",
            "localhost",
            "--cluster-preferred-endpoint-type",
            "hostname",
        ])
    })
    .steady();
    let client = ClusterClient::of_clients([self::client(&group, &certificates)]).await.unwrap();
    let tls_ports: Vec<u16> =
        (0..group.len()).map(|place| group.server(place).tls_port()).collect();
    for number in 0..100 {
        let key = format!("key:{number}");
        client.query::<()>(&Cmd::set(&key, number)).await.unwrap();
        let owner = client.owner_of(&key).unwrap();
        assert!(owner.host == "localhost" && tls_ports.contains(&owner.port), "{owner}");
    }
    tokio::task::block_in_place(|| group.fail_over(0));
    for number in 0..100 {
        let value: u32 = client.query(&Cmd::incr(format!("key:{number}"), 1)).await.unwrap();
        assert_eq!(value, number + 1);
    }

    let stranger = Certificates::issue();
    let refused = ClusterClient::of_clients([self::client(&group, &stranger)]).await.unwrap_err();
    assert!(matches!(refused, ClusterError::Unavailable(_)), "{refused:?}");
    let refused = refused.to_string();
    assert!(refused.contains("localhost") && refused.contains("certificate"), "{refused}");
}
