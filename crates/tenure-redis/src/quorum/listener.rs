//! Hints from several nodes as one stream: what a majority says is passed on.

use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::Resource;
use tenure_core::quorum::{HintCount, Quorum};

use tenure_backend::{Backend, Listening, Signal, SignalSink, Subscription};

/// One listener's listener, one per node.
pub(super) struct QuorumListener {
    quorum: Quorum,
    sink: SignalSink,
    heard: Mutex<Heard>,
}

struct Heard {
    hints: HintCount,
    is_open: Vec<bool>,
}

impl QuorumListener {
    pub(super) fn new(quorum: Quorum, sink: SignalSink) -> Self {
        let heard = Heard { hints: HintCount::new(quorum), is_open: vec![false; quorum.nodes()] };
        QuorumListener { quorum, sink, heard: Mutex::new(heard) }
    }

    /// Listens to all nodes until the answer is dropped.
    pub(super) fn listen(self, nodes: &[Arc<dyn Backend>], resource: &Resource) -> Listening {
        let listener = Arc::new(self);
        let listen_to = |(node, backend): (usize, &Arc<dyn Backend>)| {
            let listener = Arc::clone(&listener);
            let receiver: Arc<dyn Fn(Signal) + Send + Sync> =
                Arc::new(move |signal| listener.hear(node, signal));
            let listening = backend.listen(resource, SignalSink::new(&receiver));
            (listening, receiver)
        };
        let open: Vec<_> = nodes.iter().enumerate().map(listen_to).collect();
        Listening::until_dropped(move || drop(open))
    }

    fn hear(&self, node: usize, signal: Signal) {
        let passed_on = {
            let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            self.judge(&mut heard, node, signal)
        };
        if let Some(signal) = passed_on {
            // Nobody may listen any more; then this ends with the drop of the listening.
            let _ = self.sink.put(signal);
        }
    }

    fn judge(&self, heard: &mut Heard, node: usize, signal: Signal) -> Option<Signal> {
        let majority = self.quorum.majority();
        let open = |heard: &Heard| heard.is_open.iter().filter(|is_open| **is_open).count();
        match signal {
            Signal::Hint(hint) => heard.hints.hear(node, hint).map(Signal::Hint),
            Signal::Listening => {
                heard.is_open[node] = true;
                (open(heard) >= majority).then_some(Signal::Listening)
            }
            Signal::Deaf => {
                let before = open(heard);
                heard.is_open[node] = false;
                (before >= majority && open(heard) < majority).then_some(Signal::Deaf)
            }
        }
    }
}

/// The same as a subscription, kept up by a task on the current runtime.
pub(super) fn subscribe(
    quorum: Quorum,
    nodes: &[Arc<dyn Backend>],
    resource: &Resource,
) -> Subscription {
    let (sender, subscription) = Subscription::channel();
    let feeder = sender.clone();
    let receiver: Arc<dyn Fn(Signal) + Send + Sync> = Arc::new(move |signal| {
        // What does not fit is dropped: it is a hint only.
        let _ = feeder.try_send(signal);
    });
    let listening = QuorumListener::new(quorum, SignalSink::new(&receiver)).listen(nodes, resource);
    tokio::spawn(async move {
        sender.closed().await;
        drop((listening, receiver));
    });
    subscription
}
