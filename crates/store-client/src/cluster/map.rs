//! Which node has which slot, as the nodes themselves tell it.

use std::collections::{BTreeSet, HashMap};

use redis::Value;
use store_resp::slot::SLOT_COUNT;

use super::node::Node;
use super::slot::Slot;

/// More nodes than any cluster has: the makers of Redis recommend up to 1,000.
pub(super) const NODES_MAX: usize = 4096;
/// How many stretches of missing slots a message names.
const GAPS_SHOWN_MAX: usize = 3;

/// Which node has which slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotMap {
    /// Primaries and replicas.
    nodes: Vec<Node>,
    /// By slot: the place of its primary in `nodes`.
    owners: Vec<Option<u16>>,
    /// Primaries and their replicas by their places in `nodes`, each pair once.
    replicas: BTreeSet<(u16, u16)>,
}

impl SlotMap {
    /// Reads the answer to `CLUSTER SLOTS` by the node `asked`. Fails with what is wrong with it.
    pub fn parse(reply: &Value, asked: &Node) -> Result<Self, String> {
        let owners = vec![None; usize::from(SLOT_COUNT)];
        let mut map = Self { nodes: Vec::new(), owners, replicas: BTreeSet::new() };
        let mut places = HashMap::new();
        for stretch in list(reply)? {
            let [first, last, master, replicas @ ..] = list(stretch)? else {
                return Err("a range of slots without a primary".into());
            };
            let (first, last) = (slot(first)?, slot(last)?);
            let master = map.place_of(node(master, asked)?, &mut places)?;
            for replica in replicas {
                let replica = map.place_of(node(replica, asked)?, &mut places)?;
                map.replicas.insert((master, replica));
            }
            let stretch = map.owners.get_mut(first.index()..=last.index());
            stretch.ok_or("a range of slots that ends before it begins")?.fill(Some(master));
        }
        Ok(map)
    }

    /// The primary that serves a slot; `None` if nobody does.
    pub fn owner(&self, slot: Slot) -> Option<&Node> {
        self.owners[slot.index()].and_then(|place| self.nodes.get(usize::from(place)))
    }

    /// Primaries and replicas.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether a node serves any slot.
    pub fn is_owner(&self, node: &Node) -> bool {
        self.place(node).is_some_and(|place| self.owners.contains(&Some(place)))
    }

    /// Whether any slot has an owner.
    pub fn has_owners(&self) -> bool {
        self.owners.iter().any(Option::is_some)
    }

    /// The replicas of a node.
    pub fn replicas_of(&self, node: &Node) -> impl Iterator<Item = &Node> {
        let master = self.place(node);
        let pairs = self.replicas.iter().filter(move |(of, _)| Some(*of) == master);
        pairs.filter_map(|(_, replica)| self.nodes.get(usize::from(*replica)))
    }

    fn place(&self, node: &Node) -> Option<u16> {
        let place = self.nodes.iter().position(|known| known == node);
        place.and_then(|place| u16::try_from(place).ok())
    }

    /// The slots that a node serves.
    pub fn owned_by(&self, node: &Node) -> impl Iterator<Item = Slot> {
        let place = self.place(node);
        let owned = self
            .owners
            .iter()
            .zip(0..)
            .filter(move |(owner, _)| owner.is_some() && **owner == place);
        owned.filter_map(|(_, number)| Slot::numbered(number))
    }

    /// The slots of which this map and another name different owners. A slot that one of them
    /// knows nothing about is not among them.
    pub fn contradictions(&self, other: &Self) -> impl Iterator<Item = Slot> {
        let slots = (0..u64::from(SLOT_COUNT)).filter_map(Slot::numbered);
        slots.filter(|slot| {
            let owners = self.owner(*slot).zip(other.owner(*slot));
            owners.is_some_and(|(one, another)| one != another)
        })
    }

    /// Notes that a node serves no slot, until something else is heard.
    pub fn forget(&mut self, node: &Node) {
        let place = self.place(node);
        self.owners.iter_mut().filter(|owner| **owner == place).for_each(|owner| *owner = None);
    }

    /// Notes that a node said that another one serves the slot.
    pub fn learn(&mut self, slot: Slot, node: &Node) {
        if let Some(place) = self.place_for(node) {
            self.owners[slot.index()] = Some(place);
        }
    }

    /// Notes that a node said that another one is its replica.
    pub fn learn_replica(&mut self, master: &Node, replica: &Node) {
        if let (Some(master), Some(replica)) = (self.place_for(master), self.place_for(replica)) {
            self.replicas.insert((master, replica));
        }
    }

    /// The place of a node, which is given one if there is room.
    fn place_for(&mut self, node: &Node) -> Option<u16> {
        if let Some(place) = self.place(node) {
            return Some(place);
        }
        let place = u16::try_from(self.nodes.len()).ok().filter(|_| self.nodes.len() < NODES_MAX);
        place.inspect(|_| self.nodes.push(node.clone()))
    }

    /// The slots that nobody serves, as text: `0-99, 5460`. `None` if there are none.
    pub fn gaps(&self) -> Option<String> {
        let mut stretches: Vec<(usize, usize)> = Vec::new();
        for (slot, _) in self.owners.iter().enumerate().filter(|(_, owner)| owner.is_none()) {
            match stretches.last_mut() {
                Some((_, last)) if *last + 1 == slot => *last = slot,
                _ => stretches.push((slot, slot)),
            }
        }
        let text = |(first, last): &(usize, usize)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        let shown: Vec<_> = stretches.iter().take(GAPS_SHOWN_MAX).map(text).collect();
        let more = if stretches.len() > GAPS_SHOWN_MAX { ", …" } else { "" };
        (!shown.is_empty()).then(|| format!("{}{more}", shown.join(", ")))
    }

    fn place_of(&mut self, node: Node, places: &mut HashMap<Node, u16>) -> Result<u16, String> {
        if let Some(place) = places.get(&node) {
            return Ok(*place);
        }
        let place = u16::try_from(self.nodes.len()).ok().filter(|_| self.nodes.len() < NODES_MAX);
        let place = place.ok_or_else(|| format!("more than {NODES_MAX} nodes"))?;
        self.nodes.push(node.clone());
        places.insert(node, place);
        Ok(place)
    }
}

fn list(value: &Value) -> Result<&[Value], String> {
    match value {
        Value::Array(values) => Ok(values),
        _ => Err("no list where one belongs".into()),
    }
}

fn slot(value: &Value) -> Result<Slot, String> {
    let number = match value {
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => None,
    };
    number.and_then(Slot::numbered).ok_or_else(|| "a slot that does not exist".into())
}

/// `[host, port, id, …]`. A node that does not know how it is reached tells no host: then it is
/// reached as the one that was asked.
fn node(value: &Value, asked: &Node) -> Result<Node, String> {
    let [host, Value::Int(port), ..] = list(value)? else {
        return Err("a node without a place".into());
    };
    let host = match host {
        Value::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::SimpleString(text) => text.clone(),
        Value::Nil => String::new(),
        _ => return Err("a node without a host".into()),
    };
    let host = if ["", "?"].contains(&host.as_str()) { asked.host.clone() } else { host };
    let port = u16::try_from(*port).ok().filter(|port| *port > 0).ok_or("a node without a port")?;
    Ok(Node { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str, port: u16) -> Node {
        Node { host: host.into(), port }
    }

    fn told(host: Option<&str>, port: i64) -> Value {
        let host = host.map_or(Value::Nil, |host| Value::BulkString(host.into()));
        Value::Array(vec![host, Value::Int(port), Value::BulkString("id".into())])
    }

    fn stretch(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([vec![Value::Int(first), Value::Int(last)], nodes].concat())
    }

    fn parsed(stretches: Vec<Value>) -> Result<SlotMap, String> {
        SlotMap::parse(&Value::Array(stretches), &at("asked", 7))
    }

    #[test]
    fn owners_gaps_and_unknown_hosts_are_told() {
        let mut map = parsed(vec![
            stretch(0, 99, vec![told(Some("10.0.0.1"), 6379), told(Some("10.0.0.2"), 6379)]),
            stretch(101, 16_383, vec![told(None, 6380), told(Some(""), 6381)]),
        ])
        .unwrap();
        let slot = |number| Slot::numbered(number).unwrap();
        assert_eq!(map.owner(slot(99)), Some(&at("10.0.0.1", 6379)));
        assert_eq!(map.owner(slot(101)), Some(&at("asked", 6380)));
        assert_eq!((map.owner(slot(100)), map.gaps()), (None, Some("100".into())));
        assert_eq!(map.nodes().len(), 4);
        let replicas: Vec<_> = map.replicas_of(&at("10.0.0.1", 6379)).collect();
        assert_eq!(replicas, [&at("10.0.0.2", 6379)]);
        assert!(map.is_owner(&at("asked", 6380)) && !map.is_owner(&at("asked", 6381)));

        let before = map.clone();
        map.learn(slot(100), &at("new", 1));
        assert_eq!(map.contradictions(&before).next(), None, "one knew nothing about it");
        let known = map.clone();
        map.learn(slot(7), &at("new", 1));
        assert_eq!(map.contradictions(&known).collect::<Vec<_>>(), [slot(7)]);
        map = known;
        assert_eq!((map.owner(slot(100)), map.gaps()), (Some(&at("new", 1)), None));
    }

    #[test]
    fn a_bare_cluster_has_only_gaps() {
        assert_eq!(parsed(vec![]).unwrap().gaps(), Some("0-16383".into()));
    }

    #[test]
    fn nonsense_is_refused() {
        let cases = [
            vec![Value::Int(1)],
            vec![stretch(0, 1, vec![])],
            vec![stretch(5, 1, vec![told(None, 1)])],
            vec![stretch(0, 16_384, vec![told(None, 1)])],
            vec![stretch(-1, 4, vec![told(None, 1)])],
            vec![stretch(0, 1, vec![told(None, 0)])],
            vec![stretch(0, 1, vec![told(None, 70_000)])],
            vec![stretch(0, 1, vec![Value::Array(vec![])])],
        ];
        for stretches in cases {
            assert!(parsed(stretches.clone()).is_err(), "{stretches:?}");
        }
        let crowd = (0..5000).map(|port| told(Some("h"), port + 1)).collect();
        assert!(parsed(vec![stretch(0, 1, crowd)]).unwrap_err().contains("nodes"));
    }
}
