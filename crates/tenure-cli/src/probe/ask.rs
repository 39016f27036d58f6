//! One question to a sidecar, and its answer.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONNECTION, HOST};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tenure::Secret;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};

use super::pinned;
use super::target::Target;
use crate::exit::{self, Failure};

/// The most bytes of an answer: `/leader` of as many elections as a sidecar can have is less.
const BODY_LEN_MAX: usize = 1024 * 1024;

/// What was answered.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Answer {
    pub(super) fn json(&self) -> Option<Value> {
        serde_json::from_str(&self.body).ok()
    }

    pub(super) fn text(&self) -> &str {
        self.body.trim()
    }
}

/// Asks, however long the answer takes.
pub(super) async fn ask(
    target: &Target,
    path: &str,
    token: Option<&Secret>,
) -> Result<Answer, Failure> {
    let request = request(target, path, token)?;
    let answered = match target {
        Target::File(file) => exchange(of_file(target, file).await?, request).await,
        Target::Address { address, certificate: None } => {
            exchange(of_address(target, *address).await?, request).await
        }
        Target::Address { address, certificate: Some(file) } => {
            let connector = pinned::connector(file)?;
            let stream = of_address(target, *address).await?;
            let stream = connector.connect(ServerName::from(address.ip()), stream).await;
            exchange(stream.map_err(|error| untrusted(target, file, &error))?, request).await
        }
    };
    answered.map_err(|why| Failure::new(exit::UNREACHABLE, format!("{target}: {why}")))
}

fn request(
    target: &Target,
    path: &str,
    token: Option<&Secret>,
) -> Result<Request<Empty<Bytes>>, Failure> {
    let host = match target {
        Target::File(_) => "localhost".to_owned(),
        Target::Address { address, .. } => address.to_string(),
    };
    let mut request = Request::get(path).header(HOST, host).header(CONNECTION, "close");
    if let Some(token) = token {
        request = request.header(AUTHORIZATION, format!("Bearer {}", token.reveal()));
    }
    // Path and host are plain, so it is the token that has what no header may have.
    request.body(Empty::new()).map_err(|_| {
        let why = "sidecar.token has a control character in it, which cannot be sent: draw another";
        Failure::new(exit::CONFIGURATION, why)
    })
}

async fn of_file(target: &Target, file: &Path) -> Result<UnixStream, Failure> {
    UnixStream::connect(file).await.map_err(|error| unanswered(target, &error))
}

async fn of_address(target: &Target, address: SocketAddr) -> Result<TcpStream, Failure> {
    TcpStream::connect(address).await.map_err(|error| unanswered(target, &error))
}

fn unanswered(target: &Target, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::PermissionDenied {
        let why = format!("{target}: {error}; only the user of the sidecar may ask there");
        return Failure::new(exit::CONFIGURATION, why);
    }
    let why = format!(
        "nobody answers at {target} ({error}): start the sidecar, or name its address with --at"
    );
    Failure::new(exit::UNREACHABLE, why)
}

fn untrusted(target: &Target, file: &Path, error: &io::Error) -> Failure {
    let why = format!(
        "{target}: TLS failed ({error}): whoever answers there has to show the certificate in {}",
        file.display()
    );
    Failure::new(exit::CONFIGURATION, why)
}

async fn exchange<S>(stream: S, request: Request<Empty<Bytes>>) -> Result<Answer, String>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let no_http = |error: hyper::Error| {
        format!(
            "no answer in plain HTTP ({error}): another program may listen there, or the sidecar \
             serves TLS and the probe lacks its configuration (--config)"
        )
    };
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(no_http)?;
    // It moves the bytes; what ends it early is told below.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(no_http)?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), BODY_LEN_MAX).collect().await;
    let body = body.map_err(|error| format!("its answer ended early: {error}"))?.to_bytes();
    Ok(Answer { status, body: String::from_utf8_lossy(&body).into_owned() })
}

/// A name as a part of a path.
pub(super) fn escaped(name: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let escape = |byte: u8| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    name.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_part_of_the_path() {
        assert_eq!(escaped("nightly-report_2.x~"), "nightly-report_2.x~");
        assert_eq!(escaped("a/b c?d%é"), "a%2Fb%20c%3Fd%25%C3%A9");
    }
}
