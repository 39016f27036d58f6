//! A fleet and a store that can do only so much: members that find it again together must not keep
//! it so busy that it answers none of them in time.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::memory_store::MemoryStore;
use tenure_core::protocol::{Call, Request};
use tenure_core::{
    AskId, Election, InstanceId, Moment, Output, Resource, Role, ServerTime, Settings, StoreError,
    Timing, TimingSettings,
};

const MEMBERS: usize = 500;
const TTL: Duration = Duration::from_secs(2);
/// What a redis-server was measured to take for an attempt, and for each member that it lists.
const ATTEMPT_TAKES: Duration = Duration::from_micros(200);
const LISTED_MEMBER_TAKES: Duration = Duration::from_micros(5);
/// A store that is not there is noticed soon.
const REFUSED_AFTER: Duration = Duration::from_millis(1);
/// Over how long the members find the store, one after the other.
const FOUND_OVER: Duration = Duration::from_secs(1);
/// A list every 20 ms is fifty in a second. They ride along with attempts, which standbys make all
/// together when a lease might have ended, so two seconds' lists may come in one.
const LISTS_PER_SECOND_MAX: usize = 150;

#[test]
fn a_fleet_that_finds_its_store_again_leaves_it_time_for_all() {
    let mut fleet = Fleet::start();
    fleet.run_for(Duration::from_secs(20));
    assert_eq!(fleet.unanswered(), 0, "all is well before the outage");

    fleet.is_store_there = false;
    fleet.run_for(Duration::from_secs(3));
    fleet.is_store_there = true;
    fleet.find_the_store();
    let returned_at = fleet.now;
    // The lease of whoever led, a lease, and the second in which they find it.
    fleet.run_for(TTL * 2 + FOUND_OVER);
    assert_eq!(fleet.unanswered(), 0, "members without an answer since the store came back");
    assert!(fleet.members.iter().any(|member| member.leads_until().is_some()), "nobody leads");

    fleet.run_for(Duration::from_secs(20));
    let back = |at: &&Moment| **at >= returned_at;
    assert_eq!(fleet.timed_out_at.iter().filter(back).count(), 0, "answers that came too late");
    let busiest = fleet.busiest_second_of_lists(returned_at);
    assert!(busiest <= LISTS_PER_SECOND_MAX, "{busiest} lists in one second");
}

/// Many members of one resource, and a store that serves them one after the other.
struct Fleet {
    now: Moment,
    members: Vec<Election>,
    /// When each member wants to be woken.
    wakes_at: Vec<Moment>,
    store: MemoryStore,
    is_store_there: bool,
    /// When the store is done with all that was asked of it.
    store_free_at: Moment,
    /// What happens when. The number keeps in order what happens at one moment.
    agenda: BTreeMap<(Moment, usize), Happening>,
    planned: usize,
    listed_at: Vec<Moment>,
    timed_out_at: Vec<Moment>,
}

enum Happening {
    Found { by: usize },
    Wake { member: usize },
    Served { call: Box<Call>, to: usize, ask: AskId },
    Failed { error: StoreError, to: usize, ask: AskId },
}

impl Fleet {
    fn start() -> Fleet {
        let timing = TimingSettings { ttl: TTL, ..TimingSettings::default() };
        let timing = Timing::new(&timing).unwrap();
        let member = |index: usize| {
            let settings = Settings::new(resource(), id(index), timing);
            Election::new(settings, index as u64, Moment::ORIGIN)
        };
        let mut fleet = Fleet {
            now: Moment::ORIGIN,
            members: (0..MEMBERS).map(member).collect(),
            wakes_at: vec![Moment::NEVER; MEMBERS],
            store: MemoryStore::new(server_time(Moment::ORIGIN)),
            is_store_there: true,
            store_free_at: Moment::ORIGIN,
            agenda: BTreeMap::new(),
            planned: 0,
            listed_at: Vec::new(),
            timed_out_at: Vec::new(),
        };
        fleet.find_the_store();
        fleet
    }

    /// Everybody connects, in no order of rank.
    fn find_the_store(&mut self) {
        for place in 0..MEMBERS {
            let found_at = self.now + FOUND_OVER * place as u32 / MEMBERS as u32;
            self.plan(found_at, Happening::Found { by: place * 83 % MEMBERS });
        }
    }

    fn plan(&mut self, at: Moment, happening: Happening) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), happening);
    }

    fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.agenda.first_entry().filter(|next| next.key().0 <= until) {
            self.now = next.key().0;
            let happening = next.remove();
            self.happen(happening);
        }
        self.now = until;
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Found { by } => self.turn(by, |member, now| member.handle_listening(now)),
            Happening::Wake { member } if self.wakes_at[member] == self.now => {
                self.wakes_at[member] = Moment::NEVER;
                self.turn(member, |member, now| member.handle_timeout(now));
            }
            Happening::Wake { .. } => {}
            Happening::Failed { error, to, ask } => {
                self.turn(to, |member, now| member.handle_reply(now, ask, Err(error)));
            }
            Happening::Served { call, to, ask } => {
                let (answer, hints) = self.store.execute(server_time(self.now), &call);
                // Whoever gave up has heard of that, and knows this answer no more.
                self.turn(to, |member, now| member.handle_reply(now, ask, Ok(answer)));
                for hint in hints {
                    for member in 0..MEMBERS {
                        self.turn(member, |member, now| member.handle_hint(now, hint.clone()));
                    }
                }
            }
        }
    }

    fn turn(&mut self, index: usize, input: impl FnOnce(&mut Election, Moment)) {
        input(&mut self.members[index], self.now);
        loop {
            match self.members[index].poll_output() {
                Output::Ask { ask, request, timeout } => self.send(index, ask, request, timeout),
                Output::Tell(_) => {}
                Output::WaitUntil(at) => {
                    let at = at.max(self.now);
                    if at != Moment::NEVER && self.wakes_at[index] != at {
                        self.wakes_at[index] = at;
                        self.plan(at, Happening::Wake { member: index });
                    }
                    return;
                }
            }
        }
    }

    fn send(&mut self, from: usize, ask: AskId, request: Request, timeout: Duration) {
        if !self.is_store_there {
            let error = StoreError::unreachable("connection refused");
            let failed = Happening::Failed { error, to: from, ask };
            return self.plan(self.now + REFUSED_AFTER, failed);
        }
        let mut takes = ATTEMPT_TAKES;
        if lists_members(&request) {
            takes += LISTED_MEMBER_TAKES * MEMBERS as u32;
            self.listed_at.push(self.now);
        }
        self.store_free_at = self.store_free_at.max(self.now) + takes;
        let gives_up_at = self.now + timeout;
        if self.store_free_at > gives_up_at {
            self.timed_out_at.push(gives_up_at);
            let error = StoreError::timed_out(timeout);
            self.plan(gives_up_at, Happening::Failed { error, to: from, ask });
        }
        let (resource, id) = (resource(), id(from));
        let fleet_max_ttl = Duration::ZERO;
        let call = Box::new(Call { resource, id, request, timeout, fleet_max_ttl });
        self.plan(self.store_free_at, Happening::Served { call, to: from, ask });
    }

    /// How many know nothing of how the resource stands.
    fn unanswered(&self) -> usize {
        self.members.iter().filter(|member| member.role() == Role::Unknown).count()
    }

    fn busiest_second_of_lists(&self, from: Moment) -> usize {
        let lists: Vec<Moment> = self.listed_at.iter().copied().filter(|at| *at >= from).collect();
        let in_a_second = |first: usize| {
            let until = lists[first] + Duration::from_secs(1);
            lists[first..].iter().take_while(|at| **at < until).count()
        };
        (0..lists.len()).map(in_a_second).max().unwrap_or(0)
    }
}

fn lists_members(request: &Request) -> bool {
    match request {
        Request::Acquire(acquire) => acquire.members,
        Request::Observe { members } | Request::Beat { members, .. } => *members,
        _ => false,
    }
}

fn resource() -> Resource {
    Resource::named("job").unwrap()
}

fn id(index: usize) -> InstanceId {
    InstanceId::seen(&format!("n{index:03}"))
}

fn server_time(now: Moment) -> ServerTime {
    ServerTime(1_700_000_000_000_000 + now.as_nanos() / 1_000)
}
