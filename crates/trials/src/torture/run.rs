//! Runs rows: fault, heal, fault, heal, until their time is over; then judges what happened.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::Duration;

use tenure_core::Moment;
use testkit::{Random, RedisServer, WallClock};

use super::fault::Fault;
use super::fleet::{Assignment, Fleet};
use super::history::{History, What};
use super::net::Net;
use super::row::{Expected, FleetKind, Group, Mode, Row, Topology};
use super::verdict::{Ticks, Verdict, judge};
use super::world::{ActiveFaults, Clock, INSTANCES, World};
use super::{store, worker};
use crate::clock;

/// By how much P6's bound is longer than the one of a fail-over.
pub(super) const LATER_AFTER_HEALING: Duration = Duration::from_secs(1);
/// What a busy machine may add to a bound.
const SLACK: Duration = Duration::from_secs(2);
/// How long the first leader may take on a store that was only just started.
const FIRST_LEADER_MAX: Duration = Duration::from_secs(60);
/// When a wait for a leader is given up: far beyond every bound.
const LEADER_AGAIN_MAX: Duration = Duration::from_secs(60);
/// What breaks may need some luck: a newcomer must be quick on a machine that may be slow.
const TRIES_TO_BREAK_MIN: usize = 6;
/// Between two rounds, in leases.
const CALM: (f64, f64) = (0.2, 0.6);
/// One round in so many also strikes an instance.
const SECOND_FAULT_IN: u64 = 3;

/// How much is run.
#[derive(Clone, Debug)]
pub struct Budget {
    /// For how long each row strikes, per share that it has.
    pub per_share: Duration,
    /// At most so many rounds of each row.
    pub rounds_max: usize,
    /// How long a lease lasts.
    pub ttl: Duration,
    /// From which all choices are drawn.
    pub seed: u64,
    /// Stay on loopback even where network namespaces are permitted.
    pub loopback: bool,
    /// The program `trial-instance`.
    pub instance: PathBuf,
    /// The same of an older version, to have a fleet of both.
    pub older_instance: Option<PathBuf>,
    /// The program `tenure`, whose `serve` is our own store.
    pub own_store: PathBuf,
}

/// What a row did.
#[derive(Debug)]
pub struct TortureOutcome {
    /// The store.
    pub topology: Topology,
    /// Its mode.
    pub mode: Mode,
    /// The row.
    pub row: Row,
    /// How many rounds were run.
    pub rounds: usize,
    /// How often each fault struck.
    pub faults: BTreeMap<Fault, usize>,
    /// What the history says.
    pub verdict: Verdict,
    /// The longest time from whole again to a leader.
    pub healed_to_leader: Option<Duration>,
    /// The longest time from a promotion to a leader, or in `strict`, from all replicas' return.
    pub promoted_to_leader: Option<Duration>,
    /// Q + ttl: how long a fail-over may take; after healing, a second more.
    pub bound: Duration,
    /// Everything that happened.
    pub history: History,
    /// What is not as it should be, in a line each.
    pub faulty: Vec<String>,
}

/// Runs all rows of a group. `tell` hears of progress.
pub fn run_group(group: &Group, budget: &Budget, tell: &dyn Fn(&str)) -> Vec<TortureOutcome> {
    let nodes = group.topology.nodes();
    if group.topology.is_own() && !budget.own_store.exists() {
        let missing = budget.own_store.display();
        tell(&format!("{}: skipped, {missing} is not there", group.topology));
        return Vec::new();
    }
    let mut net = Net::new(nodes, INSTANCES + 1, budget.loopback);
    if let Some(limits) = net.limits() {
        tell(&limits);
    }
    let clock_count = if group.topology.is_quorum() { nodes } else { 1 };
    let clock = || WallClock::build().map(|wall| Clock { wall, ahead: 0 });
    let clocks: Vec<_> = (0..clock_count).map_while(|_| clock()).collect();
    let resource = RedisServer::builder().with_unix_socket().start();
    let resource_url = format!("redis+unix://{}", resource.unix_socket().display());
    let store = store::start(group.topology, group.mode, &net, &clocks, &budget.own_store);
    let places = |net: &mut Net, store: &dyn store::Store| -> Vec<Assignment> {
        let place = |index| Assignment { host: net.place(index), store: store.address(net, index) };
        (0..=INSTANCES).map(place).collect()
    };
    let all_places = places(&mut net, store.as_ref());
    let fleet = new_fleet(budget, &resource_url, FleetKind::Equal, all_places);
    let mut world = World {
        topology: group.topology,
        mode: group.mode,
        ttl: budget.ttl,
        store,
        fleet,
        net,
        clocks,
        random: Random::seeded(budget.seed),
        wounds: ActiveFaults::default(),
        promoted_at: None,
    };
    let mut outcomes = Vec::new();
    for row in &group.rows {
        resource.cli(&["FLUSHALL"]);
        let all_places = places(&mut world.net, world.store.as_ref());
        world.fleet = new_fleet(budget, &resource_url, row.fleet, all_places);
        let run = || run_row(row, &mut world, budget, &resource_url, tell);
        // Helpers of tests end by panic, with words that say what they waited for.
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(outcome) => outcomes.extend(outcome),
            Err(_) => {
                outcomes.push(gave_up(row, &mut world, &resource_url));
                break;
            }
        }
    }
    outcomes
}

/// A row that could not be run to its end. What state the store is in, nobody knows.
fn gave_up(row: &Row, world: &mut World, resource: &str) -> TortureOutcome {
    let history = finish(world, resource);
    let mut outcome = weigh(row, world, 0, BTreeMap::new(), Gaps::default(), history);
    outcome.faulty.insert(0, "ended before its time, see above".to_owned());
    outcome
}

fn new_fleet(budget: &Budget, resource: &str, kind: FleetKind, places: Vec<Assignment>) -> Fleet {
    // An older version knows no ticks' history and no lease but its own.
    let older = budget.older_instance.clone().filter(|_| kind == FleetKind::Equal);
    let programs = [Some(budget.instance.clone()), older].into_iter().flatten().collect();
    Fleet::new(programs, resource.to_owned(), kind, budget.ttl, places)
}

/// How long it took to have a leader again, at the longest.
#[derive(Default)]
struct Gaps {
    healed: Option<Duration>,
    promoted: Option<Duration>,
    /// Rounds after which nobody led for as long as anybody waited.
    endless: usize,
}

/// `None` when this machine cannot make any of the row's faults.
fn run_row(
    row: &Row,
    world: &mut World,
    budget: &Budget,
    resource: &str,
    tell: &dyn Fn(&str),
) -> Option<TortureOutcome> {
    let title = format!("{} {} {}", world.topology, world.mode, row.name);
    let possible: Vec<Fault> =
        row.faults.iter().copied().filter(|fault| fault.is_possible(world)).collect();
    if possible.is_empty() {
        tell(&format!("{title}: skipped, its faults cannot be made here"));
        return None;
    }
    let seed = budget.seed;
    world.fleet.history.notes.push(format!("{title}, seed {seed}, ttl {:?}", budget.ttl));
    world.fleet.heal(INSTANCES);
    let begun_at = clock::now();
    let first = world.await_proof(begun_at, FIRST_LEADER_MAX);
    assert!(first.is_some(), "{title}: no leader to begin with within {FIRST_LEADER_MAX:?}");

    let (mut faults, mut gaps, mut rounds) = (BTreeMap::new(), Gaps::default(), 0);
    let ends_at = clock::now() + budget.per_share * row.shares();
    let rounds_min = if row.expected == Expected::Breaks { TRIES_TO_BREAK_MIN } else { 1 };
    // What leaves the store other than it was is done once.
    let rounds_max = if possible == [Fault::FixAfterLoss] { 1 } else { budget.rounds_max };
    while rounds < rounds_max && (rounds < rounds_min || clock::now() < ends_at) {
        world.endure(CALM.0, CALM.1);
        round(world, &possible, &mut faults, &mut gaps);
        rounds += 1;
        if row.expected == Expected::Breaks && judge(&world.fleet.history).is_broken() {
            break;
        }
    }
    let history = finish(world, resource);
    let outcome = weigh(row, world, rounds, faults, gaps, history);
    let state = if outcome.faulty.is_empty() { "as it should be" } else { "NOT as it should be" };
    tell(&format!("{title}: {rounds} rounds, {state}"));
    Some(outcome)
}

fn round(
    world: &mut World,
    possible: &[Fault],
    faults: &mut BTreeMap<Fault, usize>,
    gaps: &mut Gaps,
) {
    world.promoted_at = None;
    // Each kind once before any comes again, so that a short run shows as much as it can.
    let count = |fault: &Fault| faults.get(fault).copied().unwrap_or(0);
    let least = possible.iter().map(count).min();
    let due: Vec<Fault> =
        possible.iter().copied().filter(|fault| Some(count(fault)) == least).collect();
    let first = *world.random.choose(&due);
    let second: Vec<_> = possible.iter().copied().filter(|one| one.is_of_instances()).collect();
    if !first.is_of_instances()
        && !second.is_empty()
        && world.random.in_range(0..SECOND_FAULT_IN) == 0
    {
        let beside = *world.random.choose(&second);
        *faults.entry(beside).or_default() += 1;
        beside.strike(world);
    }
    *faults.entry(first).or_default() += 1;
    first.strike(world);
    let healed_at = world.heal();
    await_leader(world, healed_at, gaps);
    world.fleet.kill(INSTANCES);
    world.settle();
}

fn await_leader(world: &mut World, healed_at: Moment, gaps: &mut Gaps) {
    match world.await_proof(healed_at, LEADER_AGAIN_MAX) {
        Some(at) => gaps.healed = gaps.healed.max(Some(at.since(healed_at))),
        None => gaps.endless += 1,
    }
    let Some(promoted_at) = world.promoted_at else { return };
    // In strict nothing is granted before all replicas are back.
    let counts_from: Moment = match world.mode {
        Mode::Available | Mode::Quorum => promoted_at,
        Mode::Strict => healed_at.max(promoted_at),
    };
    if let Some(at) = world.fleet.proven_after(counts_from) {
        gaps.promoted = gaps.promoted.max(Some(at.since(counts_from)));
    }
}

/// Ends all instances and reads what their sets hold.
fn finish(world: &mut World, resource: &str) -> History {
    for place in 0..world.places() {
        world.fleet.kill(place);
    }
    let held = worker::read_all(resource).expect("no fault strikes the resource");
    held.into_iter().for_each(|what: What| world.fleet.note(what));
    std::mem::take(&mut world.fleet.history)
}

fn weigh(
    row: &Row,
    world: &World,
    rounds: usize,
    faults: BTreeMap<Fault, usize>,
    mut gaps: Gaps,
    history: History,
) -> TortureOutcome {
    let verdict = judge(&history);
    let bound = world.quarantine() + world.fleet.longest_lease();
    let mut faulty = Vec::new();
    let mut check = |is_fine: bool, words: String| {
        if !is_fine {
            faulty.push(words);
        }
    };
    let overlaps = verdict.overlaps.len();
    match row.expected {
        Expected::Holds => {
            check(overlaps == 0, format!("{overlaps} overlaps where none is allowed"));
            let disorder = verdict.disorder.len();
            check(disorder == 0, format!("{disorder} tokens out of order"));
            if row.fleet == FleetKind::Ticks {
                let Ticks { done, repeated, doubled } = &verdict.ticks;
                check(*done > 0, "no tick was done".to_owned());
                check(repeated.is_empty(), format!("ticks done and begun again: {repeated:?}"));
                check(doubled.is_empty(), format!("ticks by two at once: {doubled:?}"));
            }
        }
        Expected::Breaks => check(
            overlaps > 0,
            "no overlap, though these faults cause one: the run shows nothing".into(),
        ),
        Expected::Open => {}
    }
    check(verdict.late.is_empty(), format!("{} led after their end", verdict.late.len()));
    let lost = verdict.fenced.lost;
    check(lost == 0, format!("{lost} fenced writes were lost"));
    check(verdict.fenced.confirmed > 0, "nothing was written under the fence".into());
    // A quarantine that an earlier version began does not say when. After the clock has gone
    // back it may be as long as it looks, so everybody waits for it.
    let is_waited_for = [Fault::StepClockBack, Fault::Crash].iter().all(|f| row.faults.contains(f));
    if world.fleet.has_two_versions() && is_waited_for {
        gaps = Gaps::default();
    }
    check(gaps.endless == 0, format!("no leader after {} rounds", gaps.endless));
    for (name, gap, limit) in [
        ("being healed", gaps.healed, bound + LATER_AFTER_HEALING),
        ("a promotion", gaps.promoted, bound),
    ] {
        let is_fine = gap.is_none_or(|gap| gap <= limit + SLACK);
        check(is_fine, format!("a leader only {gap:?} after {name}: the bound is {limit:?}"));
    }
    TortureOutcome {
        topology: world.topology,
        mode: world.mode,
        row: row.clone(),
        rounds,
        faults,
        verdict,
        healed_to_leader: gaps.healed,
        promoted_to_leader: gaps.promoted,
        bound,
        history,
        faulty,
    }
}
