//! Who listens to which election, however the hints come.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_backend::{Listening, Signal, SignalSink, Subscription};
use tokio::sync::{Notify, mpsc};

use crate::hint;

/// The listeners of one backend.
#[derive(Debug, Default)]
pub(crate) struct Audience {
    topics: Mutex<HashMap<Box<str>, Topic>>,
    /// Wakes the task when there is somebody new, or nobody is left.
    pub(crate) changed: Notify,
    is_closed: AtomicBool,
}

/// The listeners of one election.
#[derive(Debug, Default)]
struct Topic {
    subscribers: Vec<Subscriber>,
    /// Whether hints come.
    is_heard: bool,
    /// The number of the latest hints that came.
    number: i64,
}

#[derive(Debug)]
enum Subscriber {
    Queue(mpsc::Sender<Signal>),
    Sink { sink: SignalSink, is_over: Arc<AtomicBool> },
}

/// The latest hints about one election, as the table has them.
#[derive(Debug)]
pub(crate) struct Latest {
    pub(crate) key: String,
    pub(crate) number: i64,
    pub(crate) told: Vec<String>,
}

impl Subscriber {
    fn put(&self, signal: Signal) {
        match self {
            // Full: it has enough hints to look at the store once more anyway.
            Subscriber::Queue(queue) => drop(queue.try_send(signal)),
            Subscriber::Sink { sink, .. } => drop(sink.put(signal)),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Subscriber::Queue(queue) => queue.is_closed(),
            Subscriber::Sink { sink, is_over } => {
                is_over.load(Ordering::Acquire) || sink.is_closed()
            }
        }
    }
}

impl Topic {
    fn tell(&self, signal: &Signal) {
        self.subscribers.iter().for_each(|subscriber| subscriber.put(signal.clone()));
    }

    fn tell_text(&self, text: &str) {
        if let Some(hint) = hint::parse(text) {
            self.tell(&Signal::Hint(hint));
        }
    }
}

impl Audience {
    fn topics(&self) -> MutexGuard<'_, HashMap<Box<str>, Topic>> {
        // Nothing that runs under this lock leaves the topics half changed.
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A listener with a queue of its own.
    pub(crate) fn subscribe(&self, key: &str) -> Subscription {
        let (sender, subscription) = Subscription::channel();
        self.add(key, Subscriber::Queue(sender));
        subscription
    }

    /// A listener that takes signals at once.
    pub(crate) fn listen(&self, key: &str, sink: SignalSink) -> Listening {
        let is_over = Arc::new(AtomicBool::new(false));
        self.add(key, Subscriber::Sink { sink, is_over: Arc::clone(&is_over) });
        // The next sweep does the rest: a listener may end in the middle of a signal.
        Listening::until_dropped(move || is_over.store(true, Ordering::Release))
    }

    fn add(&self, key: &str, subscriber: Subscriber) {
        let mut topics = self.topics();
        let topic = topics.entry(key.into()).or_default();
        if topic.is_heard {
            subscriber.put(Signal::Listening);
        }
        topic.subscribers.push(subscriber);
        self.changed.notify_one();
    }

    /// The keys that somebody listens to; those of nobody are forgotten.
    pub(crate) fn keys(&self) -> Vec<String> {
        let mut topics = self.topics();
        topics.retain(|_, topic| {
            topic.subscribers.retain(|subscriber| !subscriber.is_closed());
            !topic.subscribers.is_empty()
        });
        topics.keys().map(|key| key.to_string()).collect()
    }

    /// The table was read for these keys. From now on they are heard.
    pub(crate) fn saw(&self, keys: &[String], latest: &[Latest]) {
        let mut topics = self.topics();
        for Latest { key, number, told } in latest {
            let Some(topic) = topics.get_mut(key.as_str()) else { continue };
            if topic.is_heard && *number != topic.number {
                told.iter().for_each(|text| topic.tell_text(text));
            }
            topic.number = *number;
        }
        for key in keys {
            if let Some(topic) = topics.get_mut(key.as_str())
                && !std::mem::replace(&mut topic.is_heard, true)
            {
                topic.tell(&Signal::Listening);
            }
        }
    }

    /// A notification came: `number`, key and hint, apart by tabs.
    pub(crate) fn hear(&self, payload: &str) {
        let mut parts = payload.splitn(3, '\t');
        let (Some(number), Some(key), Some(text)) = (parts.next(), parts.next(), parts.next())
        else {
            return;
        };
        let (Ok(number), mut topics) = (number.parse::<i64>(), self.topics()) else { return };
        if let Some(topic) = topics.get_mut(key).filter(|topic| topic.is_heard) {
            topic.number = topic.number.max(number);
            topic.tell_text(text);
        }
    }

    /// Nobody hears anything for now.
    pub(crate) fn deafen(&self) {
        for topic in self.topics().values_mut() {
            if std::mem::take(&mut topic.is_heard) {
                topic.tell(&Signal::Deaf);
            }
        }
    }

    /// Whether nobody listens.
    pub(crate) fn is_idle(&self) -> bool {
        self.topics().is_empty()
    }

    /// Nobody will listen any more.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Whether nobody will listen any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure_core::protocol::Hint;

    fn latest(number: i64, told: &str) -> Latest {
        Latest { key: "k".to_owned(), number, told: vec![told.to_owned()] }
    }

    #[tokio::test]
    async fn hints_come_by_both_ways_and_old_ones_are_not_told() {
        let audience = Audience::default();
        let mut heard = audience.subscribe("k");
        let keys = audience.keys();
        audience.hear("1\tk\tm");
        audience.saw(&keys, &[latest(1, "m")]);
        audience.saw(&keys, &[latest(1, "m")]);
        assert_eq!(heard.next().await, Some(Signal::Listening), "nothing before it");
        audience.saw(&keys, &[latest(2, "p")]);
        assert_eq!(heard.next().await, Some(Signal::Hint(Hint::PauseChanged)));
        audience.hear("3\tk\tk");
        audience.hear("3\tother\tk");
        audience.hear("nonsense");
        audience.saw(&keys, &[latest(3, "k")]);
        assert_eq!(heard.next().await, Some(Signal::Hint(Hint::TickFinished)));
        audience.deafen();
        assert_eq!(heard.next().await, Some(Signal::Deaf), "and nothing twice");
    }

    #[test]
    fn nobody_listens_once_all_have_gone() {
        let audience = Audience::default();
        drop(audience.subscribe("k"));
        assert!(!audience.is_idle());
        assert!(audience.keys().is_empty() && audience.is_idle());
    }
}
