//! Certificates for tests of encrypted connections, made when the test runs.

use std::path::PathBuf;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};

use crate::TempFolder;

/// An authority (`ca.pem`) and what it signed, each as `NAME.pem` with its `NAME.key`: `localhost`
/// for a server, `client` for a client, and `expired` for a server called `localhost` whose
/// certificate ended years ago.
///
/// Two of them do not trust each other. The files go away with the value.
#[derive(Debug)]
pub struct Certificates {
    folder: TempFolder,
}

impl Certificates {
    /// Makes a new authority and all that it signs.
    ///
    /// # Panics
    /// When the system's temporary folder cannot be written to.
    #[must_use]
    pub fn issue() -> Self {
        let folder = TempFolder::create();
        let mut params = params("authority", Vec::new());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, key()).expect(MAKING);
        let _ = folder.write("ca.pem", &authority.pem());
        for (name, host) in [("localhost", "localhost"), ("client", "client"), EXPIRED] {
            let key = key();
            let mut params = self::params(name, vec![host.to_owned()]);
            if name == EXPIRED.0 {
                params.not_before = date_time_ymd(2001, 1, 1);
                params.not_after = date_time_ymd(2002, 1, 1);
            }
            let certificate = params.signed_by(&key, &authority).expect(MAKING);
            let _ = folder.write(&format!("{name}.pem"), &certificate.pem());
            let _ = folder.write(&format!("{name}.key"), &key.serialize_pem());
        }
        Self { folder }
    }

    /// The path of one of the files.
    ///
    /// # Panics
    /// When the system's temporary folder has a name that is not text.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        path.into_os_string().into_string().expect("the temporary folder's name is text")
    }

    /// The settings with which a server shows the certificate `name`, and asks clients for
    /// theirs as `auth_clients` says: `no`, `optional` or `yes`.
    #[must_use]
    pub fn settings(&self, name: &str, auth_clients: &str) -> [(&'static str, String); 4] {
        [
            ("tls-cert-file", self.file(&format!("{name}.pem"))),
            ("tls-key-file", self.file(&format!("{name}.key"))),
            ("tls-ca-cert-file", self.file("ca.pem")),
            ("tls-auth-clients", auth_clients.to_owned()),
        ]
    }
}

const EXPIRED: (&str, &str) = ("expired", "localhost");
const MAKING: &str = "certificates of fixed names can be made";

fn key() -> KeyPair {
    KeyPair::generate().expect(MAKING)
}

/// With a name of its own: two of one name would look like one that signed itself.
fn params(name: &str, hosts: Vec<String>) -> CertificateParams {
    let mut params = CertificateParams::new(hosts).expect(MAKING);
    params.distinguished_name.push(DnType::CommonName, name);
    params
}
