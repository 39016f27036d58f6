//! The door's part of slots: a node of a cluster finds keys by them.

use crate::engine::Engine;

impl Engine {
    /// From now on keys are found by slot as well as by name, as a node of a cluster needs it. For
    /// an engine without keys.
    pub fn lay_out_by_slot(&mut self) {
        self.keyspace.lay_out_by_slot();
    }

    /// Another node has the slot: its keys go from here, and that is propagated. If there are
    /// many, the rest of them goes with the next [ticks](Self::tick); all of them do when writes
    /// are held back now. A replica keeps them until its primary says that they go.
    pub fn empty_slot(&mut self, now_us: u64, slot: u16) {
        if self.keyspace.is_replica() {
            return;
        }
        self.keyspace.begin(now_us, 0);
        match self.state.is_paused() {
            true => self.keyspace.empty_slot_later(slot),
            false => self.keyspace.empty_slot(slot),
        }
        self.deliver_if_any(None);
    }
}

#[cfg(test)]
mod tests {
    use store_resp::OwnedRequest;
    use store_resp::slot::slot_of;

    use super::*;
    use crate::config::Config;
    use crate::keyspace::{SnapshotForm, SnapshotKind, SnapshotTurn};
    use crate::platform::NoPlatform;
    use crate::session::{Origin, SessionId};
    use crate::state::Identity;

    const NOW: u64 = 1_700_000_000_000_000;

    struct World {
        engine: Engine,
        session: SessionId,
    }

    impl World {
        fn new() -> Self {
            let config = Config::default();
            let mut engine = Engine::new(config, Identity::default(), 3, Box::new(NoPlatform));
            engine.lay_out_by_slot();
            engine.set_feeding_file(true);
            let session = engine.open_session(NOW, Origin::default());
            Self { engine, session }
        }

        fn ask(&mut self, words: &[&str]) -> String {
            let request = OwnedRequest::from_args(words.iter().map(|word| word.as_bytes()));
            self.engine.execute(NOW, self.session, request.as_request());
            let session = self.engine.session_mut(self.session).unwrap();
            let reply = String::from_utf8_lossy(session.output.bytes()).into_owned();
            session.output.clear();
            reply
        }

        /// With a slot that went elsewhere and still has keys.
        fn emptying() -> Self {
            let mut world = Self::new();
            for number in 0..3500 {
                world.ask(&["SET", &format!("{{gone}}:{number}"), "value"]);
            }
            world.engine.empty_slot(NOW, slot_of(b"gone"));
            assert!(world.engine.keyspace().is_emptied(slot_of(b"gone")), "not all at once");
            world
        }

        fn tick(&mut self) {
            for _ in 0..10 {
                self.engine.tick(NOW);
            }
        }

        /// What was propagated since the last call: requests as words.
        fn propagated(&mut self) -> Vec<Vec<String>> {
            let units = std::mem::take(self.engine.units());
            let requests = units.iter().flat_map(|unit| &unit.requests);
            let words = |request: &OwnedRequest| {
                let args = request.as_request().args_from(0);
                args.map(|arg| String::from_utf8_lossy(arg).into_owned()).collect()
            };
            requests.map(|(_, request)| words(request)).collect()
        }
    }

    #[test]
    fn a_slot_that_went_elsewhere_is_emptied_in_slices_and_replicas_hear_of_each_key() {
        let mut world = World::new();
        for number in 0..3500 {
            world.ask(&["SET", &format!("{{gone}}:{number}"), "value"]);
            world.ask(&["SET", &format!("{{stays}}:{number}"), "value"]);
        }
        let (gone, stays) = (slot_of(b"gone"), slot_of(b"stays"));
        assert_eq!(world.engine.keyspace().slot_len(gone), 3500);
        world.propagated();
        world.engine.empty_slot(NOW, gone);
        assert!(world.engine.keyspace().is_emptied(gone), "not all at once");
        assert!(world.engine.keyspace().slot_len(gone) < 3500, "some of them at once");
        for _ in 0..10 {
            world.engine.tick(NOW);
        }
        assert!(!world.engine.keyspace().is_emptied(gone));
        assert_eq!(world.engine.keyspace().slot_len(gone), 0);
        assert_eq!(world.engine.keyspace().slot_len(stays), 3500);
        assert_eq!(world.ask(&["DBSIZE"]), ":3500\r\n");
        let mut keys: Vec<String> = Vec::new();
        for request in world.propagated() {
            assert_eq!(request[0], "DEL");
            keys.extend_from_slice(&request[1..]);
        }
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), 3500);
    }

    #[test]
    fn a_slot_is_not_emptied_further_once_the_data_is_anothers() {
        let (slot, new) = (slot_of(b"gone"), ["SET", "{gone}:new", "value"]);
        let mut world = World::emptying();
        world.engine.become_replica("127.0.0.1", 7000);
        world.engine.forget_for_primary(NOW);
        let link = world.engine.begin_loading(NOW, 1);
        let request = OwnedRequest::from_args(new.iter().map(|word| word.as_bytes()));
        world.engine.load_request(NOW, link, request.as_request()).unwrap();
        world.engine.end_loading(link);
        world.engine.empty_slot(NOW, slot);
        world.tick();
        assert_eq!(world.engine.keyspace().slot_len(slot), 1, "it is the primary's");
        world.engine.become_primary();
        world.tick();
        assert_eq!(world.engine.keyspace().slot_len(slot), 1);

        // All that was to go has gone, and what comes next stays.
        let mut world = World::emptying();
        world.ask(&["FLUSHALL"]);
        world.ask(&new);
        world.tick();
        assert_eq!(world.engine.keyspace().slot_len(slot), 1);
    }

    #[test]
    fn a_snapshot_has_the_keys_of_a_slot_that_goes_while_it_runs() {
        let mut world = World::new();
        for number in 0..5000 {
            world.ask(&["SET", &format!("{{gone}}:{number}"), "value"]);
        }
        let form = SnapshotForm::Rdb { compresses: false };
        assert!(world.engine.start_snapshot(NOW, SnapshotKind::Replica, form));
        world.engine.empty_slot(NOW, slot_of(b"gone"));
        let mut saved = 0;
        loop {
            world.engine.tick(NOW);
            match world.engine.snapshot_turn(0) {
                SnapshotTurn::More(parts) | SnapshotTurn::Waiting(parts) => {
                    saved += parts.iter().map(|part| part.entries()).sum::<usize>();
                }
                SnapshotTurn::Done(parts) => {
                    saved += parts.iter().map(|part| part.entries()).sum::<usize>();
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(saved, 5000);
        for _ in 0..10 {
            world.engine.tick(NOW);
        }
        assert_eq!(world.ask(&["DBSIZE"]), ":0\r\n");
    }

    #[test]
    fn commands_do_the_same_whichever_way_keys_are_laid_out() {
        let mut by_slot = World::new();
        let mut plain = World::new();
        let config = Config::default();
        plain.engine = Engine::new(config, Identity::default(), 3, Box::new(NoPlatform));
        plain.session = plain.engine.open_session(NOW, Origin::default());
        let mut random = store_types::Rng::seeded(6);
        for _ in 0..4000 {
            let key = format!("{{{}}}:{}", random.below(4), random.below(400));
            let other = format!("key:{}", random.below(50));
            let words: &[&str] = match random.below(8) {
                0 => &["DEL", &key],
                1 => &["RENAME", &key, &other],
                2 => &["EXPIRE", &key, "100"],
                3 => &["GET", &other],
                4 => &["COPY", &key, &other, "REPLACE"],
                5 if key.ends_with('7') => &["FLUSHALL"],
                _ => &["SET", &key, &other],
            };
            assert_eq!(by_slot.ask(words), plain.ask(words), "{words:?}");
        }
        assert_eq!(by_slot.ask(&["DBSIZE"]), plain.ask(&["DBSIZE"]));
        assert_eq!(by_slot.ask(&["DEBUG", "DIGEST"]), plain.ask(&["DEBUG", "DIGEST"]));
        assert!(by_slot.ask(&["RANDOMKEY"]).starts_with('$'));
    }
}
