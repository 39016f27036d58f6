//! A story by seed: what happens, and when by the store's clock.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::memory_store::{FIELDS, ForeignCommand, Life, MemoryStore};
use tenure_core::protocol::{
    Acquire, Answer, Ballot, Call, CloseReason, MemberRecord, Outcome, Request, TickId,
    TickOutcome, WishKind,
};
use tenure_core::{InstanceId, Resource, ServerTime, Token};
use testkit::Random;

const BEGIN: u64 = 1_700_000_000_000_000;
const EVENTS: u64 = 70;
const NAMES: [&str; 4] = ["ada_1", "bob_2", "eve_3", "zoe_4"];
const LEASES: [u64; 5] = [1_000, 3_000, 10_000, 10_001, 60_000];
/// Fields of the side record that are none of ours.
const FOREIGN_FIELDS: [&str; 2] = ["foreign", "refused:ada_1"];

/// What happens.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// A request, perhaps to a server that takes no writes.
    Call { call: Box<Call>, read_only: bool },
    /// A word of a foreign program.
    Foreign(ForeignCommand),
    /// What is in the store now may be put back later.
    Save,
    /// The store restarts with what was saved, or with what it has where nothing was.
    PutBack(Life),
    /// The store lives another life with the data that it has.
    Live(Life),
}

pub(super) struct Story {
    random: Random,
    now: u64,
    life: Life,
    is_own: bool,
    lives: u64,
    /// The attempt and the token that each instance knows of.
    attempts: BTreeMap<&'static str, u64>,
    tokens: BTreeMap<&'static str, Token>,
    told: Vec<(Event, ServerTime)>,
    resource: Resource,
}

impl Story {
    pub(super) fn new(seed: u64, is_own: bool) -> Self {
        let mut random = Random::seeded(seed);
        let age = *random.choose(&[0, 1_000_000, 120_000_000]);
        let life = Life {
            run: "run0".into(),
            replication: if is_own { String::new() } else { "rep0".into() },
            failed_over: false,
            started_at: ServerTime(BEGIN - age),
            history_is_complete: is_own && random.in_range(0..4) > 0,
        };
        Story {
            random,
            now: BEGIN,
            life,
            is_own,
            lives: 0,
            attempts: BTreeMap::new(),
            tokens: BTreeMap::new(),
            told: Vec::new(),
            resource: Resource::named("job").expect("a sound name"),
        }
    }

    pub(super) fn model(&self) -> MemoryStore {
        let mut model = MemoryStore::new(ServerTime(self.now));
        model.set_life(self.life.clone());
        model
    }

    /// What was told so far.
    pub(super) fn told(&self) -> &[(Event, ServerTime)] {
        &self.told
    }

    /// The next event, unless the story is over.
    pub(super) fn next(&mut self) -> Option<(Event, ServerTime)> {
        if self.told.len() as u64 == EVENTS {
            return None;
        }
        self.move_clock();
        let event = match self.random.in_range(0..100) {
            0..=3 => self.another_life(),
            4 => Event::Save,
            5..=6 => {
                let life = self.restarted();
                Event::PutBack(life)
            }
            7..=18 => Event::Foreign(self.word()),
            _ => self.call(),
        };
        self.told.push((event.clone(), ServerTime(self.now)));
        Some((event, ServerTime(self.now)))
    }

    /// What an instance knows after an answer.
    pub(super) fn learn(&mut self, event: &Event, answer: &Answer) {
        let Event::Call { call, .. } = event else { return };
        let Some(name) = NAMES.into_iter().find(|name| call.id.as_str() == *name) else { return };
        match answer.outcome {
            Outcome::Granted { token } | Outcome::Transferred { token } => {
                self.tokens.insert(name, token);
            }
            _ => {
                if let Some(token) = answer.view.token
                    && self.random.in_range(0..3) == 0
                {
                    self.tokens.insert(name, token);
                }
            }
        }
    }

    fn move_clock(&mut self) {
        let step = match self.random.in_range(0..20) {
            0..=7 => self.random.in_range(1..5_000),
            8..=14 => self.random.in_range(100_000..2_000_000),
            15..=17 => self.random.in_range(1_000_000..20_000_000),
            18 => self.random.in_range(1_000_000..900_000_000),
            _ => 0,
        };
        self.now += step;
        if self.random.in_range(0..40) == 0 {
            self.now -= self.random.in_range(1..3_700_000_000);
        }
    }

    fn restarted(&mut self) -> Life {
        self.lives += 1;
        self.life = Life {
            run: format!("run{}", self.lives),
            replication: if self.is_own { String::new() } else { format!("rep{}", self.lives) },
            failed_over: false,
            started_at: ServerTime(self.now),
            history_is_complete: false,
        };
        self.life.clone()
    }

    fn another_life(&mut self) -> Event {
        match self.random.in_range(0..3) {
            0 if !self.is_own => {
                // A replica took over, which may have run for long.
                let (started_at, mut life) = (self.life.started_at, self.restarted());
                life.failed_over = true;
                life.started_at = started_at;
                self.life = life;
            }
            1 if !self.is_own => {
                self.lives += 1;
                self.life.replication = format!("rep{}", self.lives);
                self.life.failed_over = self.random.in_range(0..2) == 0;
            }
            _ => drop(self.restarted()),
        }
        Event::Live(self.life.clone())
    }

    // ------------------------------------------------------------------ foreign programs

    fn word(&mut self) -> ForeignCommand {
        let key = self.resource.key().to_owned();
        let side = |suffix: &str| self.resource.side_key(suffix);
        let (meta, beats, members) = (side("meta"), side("beats"), side("members"));
        let (history, ticks) = (side("history"), side("ticks"));
        let any = [&key, &meta, &beats, &members, &history, &ticks];
        let any = (*self.random.choose(&any)).clone();
        let value = self.value();
        let ttl = self.random.in_range(1..120_000) as i64;
        match self.random.in_range(0..16) {
            0 => ForeignCommand::Set(key, value, Some(ttl)),
            1 => ForeignCommand::Set(key, "~quarantine".into(), Some(ttl)),
            2 => ForeignCommand::Set(key, self.name().into(), None),
            3 => ForeignCommand::Del(any),
            4 => ForeignCommand::Expire(key, ttl * 100),
            5 => ForeignCommand::Set(any, value, None),
            6 => ForeignCommand::SetField(any, "field".into(), value),
            7 => ForeignCommand::AddScore(beats, ttl - 60_000, value),
            8 => ForeignCommand::AddScore(beats, i64::MAX / 4096, "future".into()),
            9 => ForeignCommand::SetField(members, self.name().into(), value),
            10 => ForeignCommand::AddEntry(history, "what".into(), value),
            11 => {
                let tick = self.random.in_range(0..5);
                let field = match self.random.in_range(0..4) {
                    0 => format!("begun:{tick}"),
                    1 => "done".into(),
                    2 => "done_of".into(),
                    _ => "series:0".into(),
                };
                ForeignCommand::SetField(ticks, field, value)
            }
            12 => ForeignCommand::DelField(meta, self.field().into()),
            _ => ForeignCommand::SetField(meta, self.field().into(), value),
        }
    }

    /// A field of the side record, ours or not.
    fn field(&mut self) -> &'static str {
        let fields: &[&'static str] = match self.random.in_range(0..20) {
            0 => &FOREIGN_FIELDS,
            _ => &FIELDS,
        };
        let field: &&'static str = self.random.choose(fields);
        field
    }

    /// Something that a field may hold, ours or not.
    fn value(&mut self) -> String {
        let moment = self.now as i64 + self.random.in_range(0..200_000_000) as i64 - 100_000_000;
        let (now, name) = (self.now, self.name());
        match self.random.in_range(0..14) {
            0 => String::new(),
            1 => "-5".into(),
            2 => "9007199254740991".into(),
            3 => "9007199254740992".into(),
            4 => "1e3".into(),
            5 => "x".repeat(2_000),
            6 => "0".into(),
            7 => "1".into(),
            8 => format!("{moment} {now} {name} released"),
            9 => format!("{} {moment}", now - 5_000_000),
            10 => name.into(),
            11 => format!("begun {moment} {name}"),
            12 => format!("{moment} p=5;r=1;d=0;s=0;t=1000;v=1"),
            _ => moment.to_string(),
        }
    }

    // ------------------------------------------------------------------ requests

    fn name(&mut self) -> &'static str {
        let index = self.random.in_range(0..NAMES.len() as u64);
        NAMES[usize::try_from(index).expect("a small number")]
    }

    fn lease(&mut self) -> Duration {
        Duration::from_millis(*self.random.choose(&LEASES))
    }

    fn call(&mut self) -> Event {
        let name = self.name();
        let request = self.request(name);
        let fleet_max_ttl = match self.random.in_range(0..3) {
            0 => Duration::ZERO,
            _ => self.lease(),
        };
        let read_only = self.random.in_range(0..25) == 0;
        let (resource, id) = (self.resource.clone(), InstanceId::seen(name));
        let timeout = Duration::from_secs(1);
        let call = Call { resource, id, request, timeout, fleet_max_ttl };
        Event::Call { call: Box::new(call), read_only }
    }

    fn token(&mut self, name: &'static str) -> Token {
        const LOWEST: Token = Token::new(1).expect("not zero");
        let known = self.tokens.get(name).copied();
        let token = match self.random.in_range(0..12) {
            0 => known.and_then(|known| Token::new(known.get() - 1)),
            1 => Token::new(self.now + self.random.in_range(0..1_000_000)),
            2 => {
                let other = self.name();
                self.tokens.get(other).copied()
            }
            _ => known,
        };
        token.unwrap_or(LOWEST)
    }

    fn request(&mut self, name: &'static str) -> Request {
        let (token, ttl, fleet_max_ttl) = (self.token(name), self.lease(), self.lease());
        let fleet_max_ttl = fleet_max_ttl.max(ttl);
        match self.random.in_range(0..60) {
            0..=19 => self.acquire(name, ttl, fleet_max_ttl),
            20..=29 => Request::Renew { token, ttl, fleet_max_ttl },
            30..=32 => Request::Adopt { token, ttl, fleet_max_ttl },
            33..=36 => Request::Release { token, reason: CloseReason::Released },
            37..=38 => {
                let last = self.attempts.get(name).copied().unwrap_or(1);
                Request::Abandon { attempt: last.saturating_sub(self.random.in_range(0..2)) }
            }
            39..=41 => self.hand_over(token),
            42..=43 => Request::Observe { members: self.random.in_range(0..2) == 0 },
            44..=45 => Request::Beat { record: self.record(ttl), members: true },
            46 => Request::Leave,
            47..=48 => self.wish(token),
            49 => Request::Refuse { token, reason: "not now".into() },
            50 => Request::Pause { lasts: ttl },
            51 => Request::Resume,
            52..=53 => Request::Clear { reason: "wedged".into(), quarantine: self.lease() / 3 },
            54 => Request::History { count: 5 },
            _ => self.tick(token),
        }
    }

    fn acquire(&mut self, name: &'static str, ttl: Duration, fleet_max_ttl: Duration) -> Request {
        let attempt = self.attempts.entry(name).or_insert(0);
        *attempt += u64::from(self.random.in_range(0..4) > 0);
        let attempt = *attempt;
        let floor = match self.random.in_range(0..6) {
            0..=2 => None,
            3 => self.tokens.get(name).copied(),
            // A term that the store does not know of, the same one for a while.
            4 => Token::new(self.now - self.now % 60_000_000 + 60_000_000),
            _ => Some(self.token(name)),
        };
        let ballot = match (self.random.in_range(0..8), Token::new(self.now + 7)) {
            (0, _) => Ballot::Propose,
            (1, Some(token)) => Ballot::Settle(token),
            _ => Ballot::Alone,
        };
        let heal = (self.random.in_range(0..6) == 0).then(|| InstanceId::seen(self.name()));
        Request::Acquire(Acquire {
            attempt,
            ttl,
            fleet_max_ttl,
            floor,
            fresh_store: self.random.in_range(0..3) == 0,
            age_counts: self.random.in_range(0..2) == 0,
            lock_delay: Duration::from_millis(*self.random.choose(&[0, 0, 2_500])),
            heal,
            record: self.record(ttl),
            members: self.random.in_range(0..3) == 0,
            ballot,
        })
    }

    fn record(&mut self, ttl: Duration) -> MemberRecord {
        MemberRecord {
            priority: self.random.in_range(0..3) as i32 - 1,
            ready: self.random.in_range(0..4) > 0,
            ttl,
            ..MemberRecord::default()
        }
    }

    fn hand_over(&mut self, token: Token) -> Request {
        let (to, claim_ttl) = (InstanceId::seen(self.name()), Duration::from_millis(750));
        match self.random.in_range(0..3) {
            0 => Request::PassOn { token, to, claim_ttl },
            _ => Request::Transfer { token, to, claim_ttl },
        }
    }

    fn wish(&mut self, token: Token) -> Request {
        let wish = match self.random.in_range(0..2) {
            0 => WishKind::Resign,
            _ => WishKind::HandOver { to: self.name().into() },
        };
        Request::Ask { token, wish, stands_for: self.lease() }
    }

    fn tick(&mut self, token: Token) -> Request {
        let tick = match self.random.in_range(0..4) {
            0 => TickId::Named("import".into()),
            1 => TickId::Number(self.random.in_range(0..5)),
            _ => {
                let period = Duration::from_secs(*self.random.choose(&[1, 60]));
                let passed = self.now / u64::try_from(period.as_micros()).unwrap_or(1);
                let number = passed + self.random.in_range(0..4) - 2;
                TickId::Period { number, period }
            }
        };
        match self.random.in_range(0..6) {
            0..=1 => {
                let rerun_crashed = self.random.in_range(0..2) == 0;
                Request::TickBegin { token, tick, rerun_crashed }
            }
            2..=3 => {
                let outcome = match self.random.in_range(0..2) {
                    0 => TickOutcome::Succeeded,
                    _ => TickOutcome::Failed("no disk".into()),
                };
                Request::TickFinish { token, tick, outcome, keep: self.lease() }
            }
            4 => Request::TickReopen { token, tick },
            _ => Request::TickLook { tick },
        }
    }
}
