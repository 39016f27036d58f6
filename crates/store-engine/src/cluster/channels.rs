//! Shard channels of slots that are served somewhere else now.

use crate::engine::Engine;
use crate::pubsub::{Frame, TopicKind, tell};

impl Engine {
    /// Ends subscriptions to shard channels whose slots left this node and its replicas: messages
    /// go elsewhere from now on. Whoever listened is told, as by SUNSUBSCRIBE.
    pub fn leave_lost_channels(&mut self) {
        let Some(cluster) = &self.state.cluster else { return };
        let machine = &cluster.machine;
        let serves = |slot: u16| {
            let owner = machine.owner(slot);
            owner.is_some() && (owner == Some(machine.my_index()) || owner == machine.me().master)
        };
        for channel in self.state.pubsub.shard_channels_where(|slot| !serves(slot)) {
            self.leave_channel(&channel);
        }
    }

    fn leave_channel(&mut self, channel: &[u8]) {
        let limit = self.state.config.settings().clients.output_limits.pubsub;
        for id in self.state.pubsub.listening(TopicKind::Shard, channel) {
            let (sessions, pubsub) = (&mut self.state.sessions, &mut self.state.pubsub);
            let Some(session) = sessions.get_mut(id) else { continue };
            pubsub.unsubscribe(session, TopicKind::Shard, channel);
            let held = session.subscriptions.as_ref();
            let left = held.map_or(0, |held| held.of(TopicKind::Shard).len());
            let frame = Frame::written(|writer| {
                writer.push(3);
                writer.bulk(b"sunsubscribe");
                writer.bulk(channel);
                writer.count(left);
            });
            tell(sessions, &mut self.state.effects, limit, id, |output, protocol| {
                frame.write_to(output, protocol);
            });
        }
    }
}
