//! What is sent to a node as one piece.

use redis::aio::MultiplexedConnection;
use redis::{Arg, Cmd, Pipeline, RedisResult, ServerError, Value};

use super::commands::{Commands, Known};

/// One request.
#[derive(Clone, Copy)]
pub(super) enum ClusterRequest<'a> {
    Command(&'a Cmd),
    /// Sent between MULTI and EXEC: carried out as a whole, or not at all.
    Transaction(&'a Pipeline),
}

impl ClusterRequest<'_> {
    /// Sends it and returns its answer, or the server's refusal. Fails if the connection does.
    ///
    /// With ASKING, in the same piece, a node answers for a slot that is on its way to it.
    pub(super) async fn send(
        &self,
        line: &mut MultiplexedConnection,
        is_asking: bool,
    ) -> RedisResult<Result<Value, ServerError>> {
        let mut pipeline = Pipeline::new();
        if is_asking {
            pipeline.cmd("ASKING");
        }
        match self {
            ClusterRequest::Command(command) if !is_asking => {
                line.send_packed_command(command).await.map(accepted)
            }
            ClusterRequest::Command(command) => {
                pipeline.add_command((*command).clone());
                Ok(last(line.send_packed_commands(&pipeline, 1, 1).await?))
            }
            ClusterRequest::Transaction(commands) => {
                pipeline.cmd("MULTI");
                commands.cmd_iter().for_each(|command| {
                    pipeline.add_command(command.clone());
                });
                pipeline.cmd("EXEC");
                let mut answers = line.send_packed_commands(&pipeline, 0, pipeline.len()).await?;
                // A command that is not queued says why; EXEC says only that there was one.
                let executed = answers.pop();
                let refused = answers.into_iter().map(accepted).find_map(Result::err);
                Ok(refused.map_or_else(|| last(executed), Err))
            }
        }
    }

    /// Its commands, each with its words and what is known about it.
    pub(super) fn looked_up<'b>(&'b self, commands: &Commands) -> Vec<(Vec<&'b [u8]>, Known)> {
        let look_up = |command| {
            let words = words(command);
            let known = commands.look_up(&words);
            (words, known)
        };
        match self {
            ClusterRequest::Command(command) => vec![look_up(command)],
            ClusterRequest::Transaction(pipeline) => pipeline.cmd_iter().map(look_up).collect(),
        }
    }

    /// Whether it is carried out as a whole.
    pub(super) fn is_transaction(&self) -> bool {
        matches!(self, ClusterRequest::Transaction(_))
    }
}

fn accepted(value: Value) -> Result<Value, ServerError> {
    match value {
        Value::ServerError(error) => Err(error),
        value => Ok(value),
    }
}

fn last(values: impl IntoIterator<Item = Value>) -> Result<Value, ServerError> {
    values.into_iter().last().map_or(Ok(Value::Nil), accepted)
}

fn words(command: &Cmd) -> Vec<&[u8]> {
    let word = |argument| match argument {
        Arg::Simple(bytes) => bytes,
        // A number that the `redis` crate fills in.
        _ => &b"0"[..],
    };
    command.args_iter().map(word).collect()
}
