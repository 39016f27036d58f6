//! Many commands in few round trips.

use redis::aio::ConnectionLike;
use redis::{Cmd, Pipeline, RedisResult, Value};

/// The most commands sent at once. More gain nothing, and each of their replies waits in memory on
/// both sides.
pub const WINDOW_MAX: usize = 1024;

/// The results of one [`pipelined`] call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pipelined {
    /// Commands that the store carried out.
    pub done: u64,
    /// Commands that it answered with an error.
    pub failed: u64,
    /// Round trips that it took.
    pub round_trips: u64,
}

/// Sends `commands` in batches of at most `window` (and [`WINDOW_MAX`]) and passes every result, in
/// order, to `each`. An error reply does not stop the rest, and only one batch is held in memory.
///
/// Fails if the connection does; the commands of that batch may have been carried out.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> redis::RedisResult<()> {
/// # let server = std::sync::Arc::new(store_server::Server::builder().start().unwrap());
/// # let store = store_client::Store::of_streams(move || server.connect());
/// let mut connection = store.connect().await?;
/// let commands = (0..1000).map(|number| redis::Cmd::set(format!("key:{number}"), number));
/// let told = store_client::pipelined(&mut connection, commands, 100, |_, _| {}).await?;
/// assert_eq!((told.done, told.failed, told.round_trips), (1000, 0, 10));
/// # Ok(()) }
/// ```
pub async fn pipelined(
    connection: &mut impl ConnectionLike,
    commands: impl IntoIterator<Item = Cmd>,
    window: usize,
    mut each: impl FnMut(u64, RedisResult<Value>),
) -> RedisResult<Pipelined> {
    let window = window.clamp(1, WINDOW_MAX);
    let mut told = Pipelined::default();
    let mut commands = commands.into_iter();
    loop {
        let mut pipeline = Pipeline::with_capacity(window);
        pipeline.ignore_errors();
        for command in commands.by_ref().take(window) {
            pipeline.add_command(command);
        }
        if pipeline.is_empty() {
            return Ok(told);
        }
        let outcomes: Vec<RedisResult<Value>> = pipeline.query_async(connection).await?;
        told.round_trips += 1;
        for outcome in outcomes {
            let number = told.done + told.failed;
            match outcome {
                Ok(_) => told.done += 1,
                Err(_) => told.failed += 1,
            }
            each(number, outcome);
        }
    }
}
