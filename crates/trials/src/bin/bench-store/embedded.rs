//! A server inside this process: started, asked once, stopped.

use std::io::{Read, Write};

use store_server::Server;
use trials::clock;

use crate::Result;
use crate::report::Figures;

const TRIES: usize = 10;
const MILLIS_MAX: f64 = 20.0;

pub(crate) fn measure(figures: &mut Figures) -> Result {
    let mut best_ms = f64::MAX;
    for _ in 0..TRIES {
        let began_at = clock::now();
        start_ask_stop()?;
        best_ms = best_ms.min(clock::now().since(began_at).as_secs_f64() * 1e3);
    }
    let what = "embedded server: start, PING and shutdown, best of ten";
    figures.must(what, (best_ms, "ms"), "–".to_owned(), MILLIS_MAX);
    Ok(())
}

fn start_ask_stop() -> Result {
    let server = Server::builder().start()?;
    let mut connection = server.connect()?;
    connection.write_all(b"PING\r\n")?;
    let mut reply = [0; b"+PONG\r\n".len()];
    connection.read_exact(&mut reply)?;
    assert_eq!(&reply, b"+PONG\r\n");
    Ok(())
}
