//! The order in which the hooks of one resource are told.
//!
//! Pure: news, what came of tries and the time go in, one stream of outputs comes out. Tries have
//! numbers, so that a late result is never taken for that of another try.
//!
//! ```text
//!        news                              every hook done or tried out
//! quiet ──────► telling: try ─► pause ─┐ ─────────────────────────────► quiet
//!                         ▲            │
//!                         └────────────┘
//! newer news while telling: pauses end, a gain that runs is ended, a loss that runs may end its
//! try. When nothing runs any more, the newest news is told; what lay between is told to nobody.
//! a term whose gain was told to nobody: nor is its loss; the one before it goes on being told.
//! given up: whatever runs is ended, and nothing is begun any more.
//! ```

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{HOOK_TRIES_MAX, Happening, Turn};

/// The pause after the first failure; doubled after each further one.
const PAUSE_MIN: Duration = Duration::from_millis(200);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// What is to be done.
#[derive(Clone, Debug)]
pub(super) enum Output {
    /// Run a hook.
    Try { number: u64, hook: usize, attempt: u32, happening: Arc<Happening> },
    /// End a try that runs; what came of it is still to be reported.
    End { number: u64 },
    /// Count what came of a hook.
    Count { hook: usize, outcome: HookOutcome },
}

/// What came of telling a hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HookOutcome {
    Done,
    Retried,
    Failed,
    Superseded,
}

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tried {
    Done,
    Failed,
    /// It was ended before it was done.
    Ended,
}

#[derive(Debug)]
pub(super) struct Order {
    /// The turn that each hook waits for.
    hooks: Vec<Turn>,
    /// What is being told, to whom.
    deliveries: Vec<Delivery>,
    /// The newest news, once what is being told was told.
    waiting: Option<Arc<Happening>>,
    /// The last term whose loss is known.
    lost_token: Option<u64>,
    /// The last term whose gain was told.
    gained_token: Option<u64>,
    /// The loss of that term, and the hooks that were not told of it yet.
    loss: Option<Arc<Happening>>,
    untold: Vec<usize>,
    is_given_up: bool,
    last_number: u64,
    outputs: VecDeque<Output>,
}

#[derive(Debug)]
struct Delivery {
    hook: usize,
    attempt: u32,
    happening: Arc<Happening>,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Trying { number: u64, is_ending: bool },
    Pausing { until: Instant },
}

impl Order {
    pub(super) fn new(hooks: Vec<Turn>) -> Self {
        Order {
            hooks,
            deliveries: Vec::new(),
            waiting: None,
            lost_token: None,
            gained_token: None,
            loss: None,
            untold: Vec::new(),
            is_given_up: false,
            last_number: 0,
            outputs: VecDeque::new(),
        }
    }

    /// Something happened. The loss of a term counts once, whoever tells of it first.
    pub(super) fn handle_news(&mut self, happening: &Arc<Happening>) {
        if happening.turn == Turn::Loss {
            if self.has_lost(happening.token) {
                return;
            }
            self.lost_token = Some(happening.token);
            self.note_loss(happening);
        }
        self.drop_waiting();
        if self.is_given_up {
            return;
        }
        self.waiting = match happening.turn {
            Turn::Gain => Some(Arc::clone(happening)),
            Turn::Loss => self.loss.clone(),
        };
        self.interrupt();
        self.proceed();
    }

    /// A try has ended.
    pub(super) fn handle_tried(&mut self, now: Instant, number: u64, tried: Tried) {
        let is_it = |delivery: &Delivery| matches!(delivery.step, Step::Trying { number: known, .. } if known == number);
        let Some(index) = self.deliveries.iter().position(is_it) else { return };
        let (hook, attempt) = (self.deliveries[index].hook, self.deliveries[index].attempt);
        let outcome = match tried {
            Tried::Done => HookOutcome::Done,
            _ if self.waiting.is_some() => HookOutcome::Superseded,
            _ if attempt == HOOK_TRIES_MAX || self.is_given_up => HookOutcome::Failed,
            _ => {
                self.deliveries[index].step = Step::Pausing { until: now + pause_after(attempt) };
                return;
            }
        };
        let ended = self.deliveries.remove(index);
        if ended.happening.turn == Turn::Loss && outcome != HookOutcome::Superseded {
            self.untold.retain(|untold| *untold != hook);
        }
        self.count(hook, outcome);
        self.proceed();
    }

    /// The program ends: whatever runs is ended, and nothing is begun any more.
    pub(super) fn give_up(&mut self) {
        self.is_given_up = true;
        let (running, pausing): (Vec<_>, Vec<_>) = std::mem::take(&mut self.deliveries)
            .into_iter()
            .partition(|delivery| matches!(delivery.step, Step::Trying { .. }));
        self.deliveries = running;
        pausing.iter().for_each(|delivery| self.count(delivery.hook, HookOutcome::Failed));
        self.drop_waiting();
        for delivery in &mut self.deliveries {
            if let Step::Trying { number, is_ending: is_ending @ false } = &mut delivery.step {
                *is_ending = true;
                self.outputs.push_back(Output::End { number: *number });
            }
        }
    }

    /// Time has passed: pauses may be over.
    pub(super) fn handle_time(&mut self, now: Instant) {
        for index in 0..self.deliveries.len() {
            let delivery = &self.deliveries[index];
            if matches!(delivery.step, Step::Pausing { until } if until <= now) {
                let hook = delivery.hook;
                self.count(hook, HookOutcome::Retried);
                self.deliveries[index].attempt += 1;
                self.begin_try(index);
            }
        }
    }

    pub(super) fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with the time.
    pub(super) fn wakes_at(&self) -> Option<Instant> {
        let pauses = self.deliveries.iter().filter_map(|delivery| match delivery.step {
            Step::Pausing { until } => Some(until),
            Step::Trying { .. } => None,
        });
        pauses.min()
    }

    /// Whether everybody was told everything.
    pub(super) fn is_settled(&self) -> bool {
        self.deliveries.is_empty() && self.waiting.is_none()
    }

    /// Whether the loss of this term is known.
    pub(super) fn has_lost(&self, token: u64) -> bool {
        self.lost_token == Some(token)
    }

    /// What waits is told to nobody.
    fn drop_waiting(&mut self) {
        let Some(skipped) = self.waiting.take() else { return };
        for hook in self.listeners(skipped.turn) {
            self.count(hook, HookOutcome::Superseded);
        }
    }

    /// What is being told is old. A gain must not go on beside the loss; a loss cleans up, so its
    /// try may end, and is not repeated.
    fn interrupt(&mut self) {
        let mut given_up = Vec::new();
        for delivery in &mut self.deliveries {
            match &mut delivery.step {
                Step::Pausing { .. } => given_up.push(delivery.hook),
                Step::Trying { number, is_ending } => {
                    if delivery.happening.turn == Turn::Gain && !*is_ending {
                        *is_ending = true;
                        self.outputs.push_back(Output::End { number: *number });
                    }
                }
            }
        }
        self.deliveries.retain(|delivery| matches!(delivery.step, Step::Trying { .. }));
        given_up.into_iter().for_each(|hook| self.count(hook, HookOutcome::Superseded));
    }

    /// The loss of the term whose gain was told. Of one that nobody was told of, nobody has to hear
    /// the end; it shows at most that the one before is over as well.
    fn note_loss(&mut self, happening: &Arc<Happening>) {
        let Some(token) = self.gained_token.filter(|_| self.loss.is_none()) else { return };
        self.loss = Some(match happening.token == token {
            true => Arc::clone(happening),
            false => {
                let (turn, reason) = (happening.turn, happening.reason);
                let (name, id) = (happening.name.clone(), happening.id.clone());
                Arc::new(Happening { turn, name, id, token, reason })
            }
        });
        self.untold = self.listeners(Turn::Loss);
    }

    /// Tells the newest news once nothing else is being told.
    fn proceed(&mut self) {
        let Some(happening) = self.waiting.take() else { return };
        if self.deliveries.iter().any(|delivery| !Arc::ptr_eq(&delivery.happening, &happening)) {
            self.waiting = Some(happening);
            return;
        }
        let hooks = match happening.turn {
            Turn::Gain => {
                (self.gained_token, self.loss) = (Some(happening.token), None);
                self.untold.clear();
                self.listeners(Turn::Gain)
            }
            // Some may be hearing of it.
            Turn::Loss => self.untold.clone(),
        };
        for hook in hooks {
            if self.deliveries.iter().any(|delivery| delivery.hook == hook) {
                continue;
            }
            let step = Step::Trying { number: 0, is_ending: false };
            let happening = Arc::clone(&happening);
            self.deliveries.push(Delivery { hook, attempt: 1, happening, step });
            self.begin_try(self.deliveries.len() - 1);
        }
    }

    fn begin_try(&mut self, index: usize) {
        self.last_number += 1;
        let (number, delivery) = (self.last_number, &mut self.deliveries[index]);
        delivery.step = Step::Trying { number, is_ending: false };
        self.outputs.push_back(Output::Try {
            number,
            hook: delivery.hook,
            attempt: delivery.attempt,
            happening: Arc::clone(&delivery.happening),
        });
    }

    fn listeners(&self, turn: Turn) -> Vec<usize> {
        (0..self.hooks.len()).filter(|hook| self.hooks[*hook] == turn).collect()
    }

    fn count(&mut self, hook: usize, outcome: HookOutcome) {
        self.outputs.push_back(Output::Count { hook, outcome });
    }
}

fn pause_after(attempt: u32) -> Duration {
    let doubled = 2_u32.saturating_pow(attempt.saturating_sub(1));
    PAUSE_MIN.saturating_mul(doubled).min(PAUSE_MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use testkit::Random;

    use super::*;

    fn happening(turn: Turn, token: u64) -> Arc<Happening> {
        let (name, id) = ("report".to_owned(), "ada_1".to_owned());
        Arc::new(Happening { turn, name, id, token, reason: "granted" })
    }

    fn outputs(order: &mut Order) -> Vec<Output> {
        std::iter::from_fn(|| order.poll_output()).collect()
    }

    #[test]
    fn pauses_double_up_to_their_limit() {
        let pauses = [1, 2, 3, 40].map(|attempt| pause_after(attempt).as_millis());
        assert_eq!(pauses, [200, 400, 800, 10_000]);
    }

    #[test]
    fn a_result_that_comes_late_is_nobody_elses() {
        let now = Instant::now();
        let mut order = Order::new(vec![Turn::Gain]);
        order.handle_news(&happening(Turn::Gain, 1));
        order.handle_tried(now, 1, Tried::Failed);
        order.handle_time(now + PAUSE_MIN);
        outputs(&mut order);
        order.handle_tried(now, 1, Tried::Done);
        assert!(!order.is_settled(), "the second try still runs");
        assert!(outputs(&mut order).is_empty());
    }

    #[test]
    fn the_loss_of_a_term_is_told_once() {
        let mut order = Order::new(vec![Turn::Loss]);
        order.handle_news(&happening(Turn::Gain, 7));
        order.handle_news(&happening(Turn::Loss, 7));
        order.handle_news(&happening(Turn::Loss, 7));
        order.handle_tried(Instant::now(), 1, Tried::Done);
        assert!(order.is_settled() && order.has_lost(7));
    }

    /// The terms that hooks on loss were told of.
    fn losses_told(order: &mut Order) -> Vec<u64> {
        let told = outputs(order).into_iter().filter_map(|output| match output {
            Output::Try { happening, .. } if happening.turn == Turn::Loss => Some(happening.token),
            _ => None,
        });
        told.collect()
    }

    #[test]
    fn no_loss_is_told_of_a_term_whose_gain_was_not() {
        let now = Instant::now();
        let mut order = Order::new(vec![Turn::Gain, Turn::Loss]);
        order.handle_news(&happening(Turn::Loss, 6));
        assert!(order.is_settled() && order.has_lost(6) && losses_told(&mut order).is_empty());
        order.handle_news(&happening(Turn::Gain, 7));
        order.handle_tried(now, 1, Tried::Done);
        order.handle_news(&happening(Turn::Loss, 7));
        // While that is told, another term comes and goes.
        order.handle_news(&happening(Turn::Gain, 8));
        order.handle_news(&happening(Turn::Loss, 8));
        assert_eq!(losses_told(&mut order), [7]);
        // What fails is tried again, for it is still true.
        order.handle_tried(now, 2, Tried::Failed);
        order.handle_time(now + PAUSE_MIN);
        assert_eq!(losses_told(&mut order), [7]);
        order.handle_tried(now, 3, Tried::Done);
        assert!(order.is_settled() && order.has_lost(8) && losses_told(&mut order).is_empty());
    }

    /// The hooks of one resource under random news, results and times, beside what must hold.
    struct World {
        order: Order,
        now: Instant,
        newest: Option<Arc<Happening>>,
        running: BTreeMap<u64, (Arc<Happening>, bool)>,
        /// Per hook, the last news it was told, and how it ended.
        told: BTreeMap<usize, u64>,
        tries: BTreeMap<(usize, u64), u32>,
        is_given_up: bool,
    }

    impl World {
        fn new(hooks: Vec<Turn>) -> Self {
            World {
                order: Order::new(hooks),
                now: Instant::now(),
                newest: None,
                running: BTreeMap::new(),
                told: BTreeMap::new(),
                tries: BTreeMap::new(),
                is_given_up: false,
            }
        }

        fn give_up(&mut self) {
            self.is_given_up = true;
            self.order.give_up();
            self.check();
            let going_on = self.running.values().filter(|(_, is_ending)| !is_ending);
            assert_eq!(going_on.count(), 0, "a try goes on though the program ends");
        }

        fn news(&mut self, turn: Turn, token: u64) {
            let news = happening(turn, token);
            self.order.handle_news(&news);
            // The end of a term that nobody was told of makes the one before it the newest.
            self.newest = match turn {
                Turn::Gain => Some(news),
                Turn::Loss => self.order.loss.clone(),
            };
            let told = self.newest.as_ref().filter(|newest| newest.turn == Turn::Loss);
            let was_gain_told = |loss: &Arc<Happening>| self.order.gained_token == Some(loss.token);
            assert!(told.is_none_or(was_gain_told), "a loss without its gain");
            self.check();
        }

        fn tried(&mut self, number: u64, tried: Tried) {
            self.running.remove(&number);
            self.order.handle_tried(self.now, number, tried);
            self.check();
        }

        fn wait(&mut self, time: Duration) {
            self.now += time;
            self.order.handle_time(self.now);
            self.check();
        }

        fn check(&mut self) {
            for output in outputs(&mut self.order) {
                match output {
                    Output::Try { number, hook, attempt, happening } => {
                        self.check_try(hook, attempt, &happening);
                        self.running.insert(number, (happening, false));
                    }
                    Output::End { number } => {
                        let (happening, is_ending) = self.running.get_mut(&number).unwrap();
                        let may_end = happening.turn == Turn::Gain || self.is_given_up;
                        assert!(may_end, "a loss is told to its end");
                        *is_ending = true;
                    }
                    Output::Count { .. } => {}
                }
            }
            let newest = self.newest.as_ref();
            for (happening, is_ending) in self.running.values() {
                let is_old = newest.is_some_and(|newest| !Arc::ptr_eq(newest, happening));
                let goes_on = happening.turn == Turn::Gain && is_old && !is_ending;
                assert!(!goes_on, "an old gain goes on");
            }
        }

        fn check_try(&mut self, hook: usize, attempt: u32, happening: &Arc<Happening>) {
            assert!(!self.is_given_up, "a try begins though the program ends");
            let newest = self.newest.as_ref().unwrap();
            assert!(Arc::ptr_eq(newest, happening), "old news is told");
            let others = self.running.values().filter(|(other, _)| !Arc::ptr_eq(other, happening));
            assert_eq!(others.count(), 0, "older news is still being told");
            assert_eq!(self.order.hooks[hook], happening.turn);
            let tries = self.tries.entry((hook, happening.token)).or_default();
            // Told anew, after a gain that came and went.
            *tries = if attempt == 1 { 1 } else { *tries + 1 };
            assert!(*tries == attempt && attempt <= HOOK_TRIES_MAX);
            self.told.insert(hook, happening.token);
        }

        /// Nothing new happens, and every try ends: then everybody knows the newest.
        fn calm_down(&mut self) {
            for _ in 0..100 {
                while let Some(number) = self.running.keys().next().copied() {
                    let (_, is_ending) = self.running[&number];
                    self.tried(number, if is_ending { Tried::Ended } else { Tried::Failed });
                }
                self.wait(PAUSE_MAX);
            }
            assert!(self.order.is_settled(), "it never ends: {:?}", self.order);
            let Some(newest) = self.newest.as_ref().filter(|_| !self.is_given_up) else { return };
            for hook in self.order.listeners(newest.turn) {
                assert_eq!(self.told.get(&hook), Some(&newest.token), "{hook} missed the newest");
            }
        }
    }

    #[test]
    fn whatever_happens_only_the_newest_is_told_and_in_order() {
        let first = testkit::seed();
        for seed in first..first + 2_000 {
            let mut random = Random::seeded(seed);
            let turns = [Turn::Gain, Turn::Loss];
            let hooks = (0..random.in_range(0..5)).map(|_| *random.choose(&turns)).collect();
            let mut world = World::new(hooks);
            let (mut token, mut turn) = (0, Turn::Loss);
            for _ in 0..random.in_range(1..60) {
                match random.in_range(0..4) {
                    _ if random.in_range(0..100) == 0 => world.give_up(),
                    0 => {
                        // Mostly in turn; events that were dropped leave two of a kind.
                        let flips = turn == Turn::Loss || random.in_range(0..10) > 0;
                        turn = if flips && turn == Turn::Gain { Turn::Loss } else { Turn::Gain };
                        token += u64::from(turn == Turn::Gain);
                        world.news(turn, token);
                    }
                    1 => world.wait(Duration::from_millis(random.in_range(0..2_000))),
                    _ => {
                        let Some(number) = world.running.keys().next_back().copied() else {
                            continue;
                        };
                        let (_, is_ending) = world.running[&number];
                        let endings = [Tried::Done, Tried::Failed, Tried::Ended];
                        let possible = if is_ending { &endings[..] } else { &endings[..2] };
                        world.tried(number, *random.choose(possible));
                    }
                }
            }
            world.calm_down();
        }
    }
}
