//! What a flawed sentinel says and hears in place of what its core and its peers mean.

use store_resp::Reply;
use store_sentinel::{Hello, Question};

use super::climate::sentinel_named;
use super::flaw::Flaw;
use super::world::World;

impl World {
    /// The flaws of asking and telling.
    pub(crate) fn as_a_flawed_sentinel_says_it(&self, node: usize, question: Question) -> Question {
        match (self.flaw, question) {
            (Some(Flaw::CountCurrentEpoch), Question::IsDown(mut question)) => {
                question.epoch = self.nodes[node].sentinel.current_epoch();
                Question::IsDown(question)
            }
            (Some(Flaw::HelloWithoutEpoch), Question::Hello(text)) => {
                let hello = Hello::parse(text.as_bytes()).expect("own words");
                Question::Hello(Hello { config_epoch: 0, ..hello }.to_text())
            }
            (_, question) => question,
        }
    }

    /// The flaws of listening; `None` is not heard at all.
    pub(crate) fn as_a_flawed_sentinel_hears_it(&self, node: usize, reply: Reply) -> Option<Reply> {
        let Some(flaw) = self.flaw else { return Some(reply) };
        match (flaw, reply) {
            (Flaw::CountCurrentEpoch, Reply::Array(mut items)) => {
                let sentinel = &self.nodes[node].sentinel;
                let current = sentinel.current_epoch() as i64;
                let own = self.nodes[node].group().failover_epoch();
                if let [Reply::Integer(_), _, Reply::Integer(epoch)] = &mut items[..]
                    && let Some(own) = own.filter(|_| *epoch == current)
                {
                    *epoch = own as i64;
                }
                Some(Reply::Array(items))
            }
            (
                Flaw::IgnoreAge | Flaw::OffsetBeforePriority | Flaw::OffsetsOfTwoHistories,
                Reply::Bulk(text),
            ) => {
                let name = match flaw {
                    Flaw::IgnoreAge => "master_link_down_since_seconds:",
                    Flaw::OffsetsOfTwoHistories => "master_replid:",
                    _ => "slave_priority:",
                };
                let text = String::from_utf8_lossy(&text);
                let lines = text.lines().filter(|line| !line.starts_with(name));
                let text: String = lines.map(|line| format!("{line}\r\n")).collect();
                Some(Reply::Bulk(text.into_bytes()))
            }
            (_, Reply::Array(mut items)) => {
                if let [Reply::Bulk(kind), _, Reply::Bulk(text)] = &mut items[..]
                    && kind == b"message"
                {
                    *text = self.as_a_flawed_sentinel_reads_it(node, text)?;
                }
                Some(Reply::Array(items))
            }
            (_, reply) => Some(reply),
        }
    }

    /// The flaws of hellos.
    pub(crate) fn as_a_flawed_sentinel_reads_it(
        &self,
        node: usize,
        text: &[u8],
    ) -> Option<Vec<u8>> {
        let hello = Hello::parse(text)?;
        let group = self.nodes[node].group();
        let (own_epoch, sentinels) = (group.config_epoch(), self.nodes.len());
        match self.flaw {
            Some(Flaw::OlderHelloWins) if hello.config_epoch < own_epoch => {
                Some(Hello { config_epoch: own_epoch + 1, ..hello }.to_text().into_bytes())
            }
            Some(Flaw::ElectedWithoutMajority) => {
                let from = sentinel_named(hello.id.as_str());
                (from == Some((node + 1) % sentinels)).then(|| text.to_vec())
            }
            _ => Some(text.to_vec()),
        }
    }
}
