//! Sorted sets: members in the order of their scores.

mod range;
mod small;

use std::cmp::Ordering;
use std::ops::Range;

use range::RangeForm;
pub use range::SortedRange;
use small::{checked_score, find, insert_small, move_small, push_score, score_of};

use crate::damage::Damaged;
use crate::element::Element;
use crate::limits::{Encoding, Limits};
use crate::listpack::Listpack;
use crate::pairs::{self, Pairs};
use crate::rng::Rng;
use crate::table::{Keyed, Table};
use crate::text::Text;
use crate::tree::{Item, Tree};

/// A sorted set: one listpack of members and scores while small; a table by member and a tree by
/// score beyond. Equal scores are ordered by the members' bytes.
///
/// All ranges are ranges of ranks: [`Self::count_below`] and [`Self::count_before`] turn bounds of
/// scores or members into ranks, [`Self::range`] walks them.
///
/// ```
/// # use store_types::{Limits, ScoreBound, SortedSet};
/// let limits = Limits::default();
/// let mut set = SortedSet::new();
/// set.insert(b"ada", 3.0, &limits);
/// set.insert(b"bob", 1.5, &limits);
/// assert_eq!(set.rank(b"ada"), Some(1));
/// let above_two = set.count_below(ScoreBound::At(2.0))..set.len();
/// assert_eq!(set.range(above_two).count(), 1);
/// ```
#[derive(Clone)]
pub struct SortedSet {
    form: Form,
}

#[derive(Clone)]
enum Form {
    Small(Listpack),
    Large(Box<Large>),
}

#[derive(Clone)]
struct Large {
    by_member: Table<Item>,
    by_score: Tree,
}

impl Keyed for Item {
    #[inline]
    fn key(&self) -> &[u8] {
        self.member.as_bytes()
    }

    #[inline]
    fn heap_bytes(&self) -> usize {
        self.member.heap_bytes()
    }
}

/// A place between scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScoreBound {
    /// Just before the members with this score.
    At(f64),
    /// Just after them.
    After(f64),
}

/// A place between members of one score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberBound<'a> {
    /// Before all members.
    First,
    /// Just before this member.
    At(&'a [u8]),
    /// Just after this member.
    After(&'a [u8]),
    /// After all members.
    Last,
}

/// What [`SortedSet::insert`] did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Inserted {
    /// The member is new.
    Added,
    /// The member was there with another score.
    Moved {
        /// The score it had.
        from: f64,
    },
    /// The member was there with this score.
    Unchanged,
}

impl Default for SortedSet {
    fn default() -> Self {
        Self::new()
    }
}

impl SortedSet {
    /// An empty sorted set.
    pub fn new() -> Self {
        Self { form: Form::Small(Listpack::new()) }
    }

    /// An empty sorted set in the large form, for a result of yet unknown size; [`Self::compact`]
    /// follows when it is complete.
    pub fn large_with_capacity(count: usize, limits: &Limits) -> Self {
        let by_member = Table::with_capacity(limits.hash_seed, count);
        Self { form: Form::Large(Box::new(Large { by_member, by_score: Tree::new() })) }
    }

    /// Takes a listpack of members and scores. As in Redis only their number may convert it, not
    /// their length.
    ///
    /// # Errors
    /// [`Damaged`] when it is empty, a score is missing or no number, a member comes twice, or the
    /// order is wrong.
    pub fn from_listpack(pack: Listpack, limits: &Limits) -> Result<Self, Damaged> {
        pairs::check(&pack, "sorted set")?;
        let mut previous: Option<(Element<'_>, f64)> = None;
        for (member, score) in Pairs::new(&pack) {
            let score = checked_score(score)
                .ok_or(Damaged::new("sorted set", "a score is not a number"))?;
            let ordered = previous.is_none_or(|(earlier, below)| {
                below < score
                    || (below == score
                        && member.with_bytes(|bytes| earlier.compare(bytes)) == Ordering::Less)
            });
            if !ordered {
                return Err(Damaged::new("sorted set", "not in order"));
            }
            previous = Some((member, score));
        }
        let too_many = pack.len() / 2 > limits.zset_listpack_entries_max;
        let mut set = Self { form: Form::Small(pack) };
        if too_many {
            set.convert(limits);
        }
        Ok(set)
    }

    /// How many members there are.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Small(pack) => pack.len() / 2,
            Form::Large(large) => large.by_score.len(),
        }
    }

    /// Whether there is none; the key should go then.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How it is kept.
    pub fn encoding(&self) -> Encoding {
        match &self.form {
            Form::Small(_) => Encoding::Listpack,
            Form::Large(_) => Encoding::Skiplist,
        }
    }

    /// The bytes of the small form.
    pub fn as_listpack(&self) -> Option<&Listpack> {
        match &self.form {
            Form::Small(pack) => Some(pack),
            Form::Large(_) => None,
        }
    }

    /// Allocated bytes.
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Small(pack) => pack.heap_bytes(),
            Form::Large(large) => {
                size_of::<Large>() + large.by_member.heap_bytes() + large.by_score.heap_bytes()
            }
        }
    }

    /// A member's score.
    #[inline]
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.form {
            Form::Small(pack) => {
                let place = find(pack, member)?;
                pack.next(place).map(|place| score_of(pack.get(place)))
            }
            Form::Large(large) => large.by_member.get(member).map(|item| item.score),
        }
    }

    /// A member's rank, counted from the lowest score.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match &self.form {
            Form::Small(pack) => Pairs::new(pack).position(|(found, _)| found == *member),
            Form::Large(large) => {
                let score = large.by_member.get(member)?.score;
                let before = |item: &Item| item.compare(score, member) == Ordering::Less;
                Some(large.by_score.count_before(before))
            }
        }
    }

    /// Gives a member this score, adding it if need be. `score` is a number, never NaN.
    pub fn insert(&mut self, member: &[u8], score: f64, limits: &Limits) -> Inserted {
        assert!(!score.is_nan(), "no order holds a NaN");
        if let Form::Small(pack) = &mut self.form {
            if let Some(place) = find(pack, member) {
                return move_small(pack, place, member, score);
            }
            let fits = pack.len() / 2 < limits.zset_listpack_entries_max
                && member.len() <= limits.zset_listpack_value_max
                && pack.has_room_for(member.len());
            if fits {
                insert_small(pack, member, score);
                return Inserted::Added;
            }
            self.convert(limits);
        }
        match &mut self.form {
            Form::Large(large) => large.insert(member, score),
            Form::Small(_) => unreachable!("converted above"),
        }
    }

    /// Removes a member and returns its score.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.form {
            Form::Small(pack) => {
                let place = find(pack, member)?;
                let score = score_of(pack.get(pack.next(place)?));
                pack.remove_from(place, 2);
                Some(score)
            }
            Form::Large(large) => {
                let item = large.by_member.remove(member)?;
                assert!(large.by_score.remove(item.score, member), "both hold every member");
                Some(item.score)
            }
        }
    }

    /// Removes the members with these ranks; returns how many there were.
    pub fn remove_range(&mut self, ranks: Range<usize>) -> usize {
        let end = ranks.end.min(self.len());
        let count = end.saturating_sub(ranks.start);
        match &mut self.form {
            Form::Small(pack) => pack.remove_range(2 * ranks.start, 2 * count),
            Form::Large(large) => {
                let items: Vec<Item> = large.by_score.range(ranks.start..end).cloned().collect();
                for item in items {
                    large.by_member.remove(item.key());
                    large.by_score.remove(item.score, item.key());
                }
            }
        }
        count
    }

    /// How many members lie below a bound of scores.
    pub fn count_below(&self, bound: ScoreBound) -> usize {
        let is_below = |score: f64| match bound {
            ScoreBound::At(limit) => score < limit,
            ScoreBound::After(limit) => score <= limit,
        };
        match &self.form {
            Form::Small(pack) => {
                Pairs::new(pack).take_while(|(_, score)| is_below(score_of(*score))).count()
            }
            Form::Large(large) => large.by_score.count_before(|item| is_below(item.score)),
        }
    }

    /// How many members lie below a bound of members. Meaningful when all scores are equal; with
    /// different scores the answer is some number up to the length, as in Redis.
    pub fn count_before(&self, bound: MemberBound<'_>) -> usize {
        let is_before = |member: &[u8]| match bound {
            MemberBound::First => false,
            MemberBound::At(limit) => member < limit,
            MemberBound::After(limit) => member <= limit,
            MemberBound::Last => true,
        };
        match &self.form {
            Form::Small(pack) => {
                Pairs::new(pack).take_while(|(member, _)| member.with_bytes(is_before)).count()
            }
            Form::Large(large) => large.by_score.count_before(|item| is_before(item.key())),
        }
    }

    /// The members with these ranks and their scores, from either end.
    pub fn range(&self, ranks: Range<usize>) -> SortedRange<'_> {
        let end = ranks.end.min(self.len());
        let start = ranks.start.min(end);
        match &self.form {
            Form::Small(pack) => {
                SortedRange(RangeForm::Small { pack, front: None, back: None, start, end })
            }
            Form::Large(large) => SortedRange(RangeForm::Large(large.by_score.range(start..end))),
        }
    }

    /// All members and their scores, in order.
    pub fn iter(&self) -> SortedRange<'_> {
        self.range(0..self.len())
    }

    /// Visits about `count` members from `cursor` on and returns the next cursor, zero at the end.
    /// A small sorted set is visited whole.
    pub fn scan<'a>(
        &'a self,
        cursor: u64,
        count: usize,
        mut visit: impl FnMut(Element<'a>, f64),
    ) -> u64 {
        match &self.form {
            Form::Small(pack) => {
                Pairs::new(pack).for_each(|(member, score)| visit(member, score_of(score)));
                0
            }
            Form::Large(large) => large.by_member.scan(cursor, count, |item| {
                visit(Element::Bytes(item.key()), item.score);
            }),
        }
    }

    /// One member at random.
    pub fn random(&self, rng: &mut Rng) -> Option<(Element<'_>, f64)> {
        self.range(0..self.len()).nth(rng.below(self.len().max(1)))
    }

    /// `count` distinct members at random, all of them if there are no more.
    pub fn sample(&self, rng: &mut Rng, count: usize) -> Vec<(Element<'_>, f64)> {
        match &self.form {
            Form::Small(pack) => pairs::sample(pack, rng, count)
                .into_iter()
                .map(|(member, score)| (member, score_of(score)))
                .collect(),
            Form::Large(large) => {
                large.by_member.sample(rng, count).into_iter().map(member_and_score).collect()
            }
        }
    }

    /// Turns to the large form now, whatever the limits say.
    /// Turns to the large form, however small it is.
    pub fn convert(&mut self, limits: &Limits) {
        let Form::Small(pack) = &self.form else { return };
        let by_member = Table::with_capacity(limits.hash_seed, pack.len() / 2 + 1);
        let mut large = Large { by_member, by_score: Tree::new() };
        for (member, score) in Pairs::new(pack) {
            member.with_bytes(|member| large.insert(member, score_of(score)));
        }
        self.form = Form::Large(Box::new(large));
    }

    /// Turns to the small form when the limits allow it: what ZUNIONSTORE and its kin do with a
    /// result built in the large form.
    pub fn compact(&mut self, limits: &Limits) {
        let Form::Large(large) = &self.form else { return };
        let items = large.by_score.range(0..large.by_score.len());
        let bytes: usize = items.clone().map(|item| item.key().len() + 24).sum();
        let fits = large.by_score.len() <= limits.zset_listpack_entries_max
            && items.clone().all(|item| item.key().len() <= limits.zset_listpack_value_max)
            && Listpack::new().has_room_for(bytes);
        if fits {
            let mut pack = Listpack::with_capacity(bytes);
            for item in items {
                pack.push_back(item.key());
                push_score(&mut pack, item.score);
            }
            self.form = Form::Small(pack);
        }
    }
}

impl Large {
    fn insert(&mut self, member: &[u8], score: f64) -> Inserted {
        match self.by_member.get(member).map(|item| item.score) {
            Some(from) if from == score => Inserted::Unchanged,
            Some(from) => {
                self.by_score.remove(from, member);
                let member = self.by_member.update(member, |item| {
                    item.score = score;
                    item.member.clone()
                });
                let member = member.expect("just found");
                self.by_score.insert(Item { score, member });
                Inserted::Moved { from }
            }
            None => {
                let item = Item { score, member: Text::new(member) };
                self.by_member.insert_with(member, || item.clone());
                self.by_score.insert(item);
                Inserted::Added
            }
        }
    }
}

fn member_and_score(item: &Item) -> (Element<'_>, f64) {
    (Element::Bytes(item.member.as_bytes()), item.score)
}

impl std::fmt::Debug for SortedSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests;
