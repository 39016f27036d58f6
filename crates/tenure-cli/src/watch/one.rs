//! One election on a terminal.

use std::sync::Arc;

use tenure::{Changes, HistoryEntry};
use tokio::sync::{Notify, mpsc};

use super::screen::Screen;
use super::view::{Knowledge, TERMS_SHOWN};
use super::{LOOK_EVERY, REDRAW_EVERY};
use crate::exit::{self, Failure};
use crate::sight::Sight;
use crate::store_options::{StoreObserver, blame};

/// The view on a terminal.
pub(super) struct View<'a> {
    pub(super) name: &'a str,
    pub(super) store_observer: &'a StoreObserver,
}

impl View<'_> {
    /// Until somebody wants to leave. Drawing never waits for the store.
    pub(super) async fn follow(&self, mut changes: Changes) -> Result<(), Failure> {
        let screen = Screen::enter();
        let mut screen = screen
            .map_err(|error| Failure::new(exit::NO, format!("cannot use the terminal: {error}")))?;
        let (hints, mut looks) = self.keep_looking();
        let mut knowledge = Knowledge::default();
        let place = self.store_observer.tenure.store();
        if let Ok(Some(looked)) = tokio::time::timeout(LOOK_EVERY, looks.recv()).await {
            knowledge.take(looked);
        }
        loop {
            screen.draw(|columns| knowledge.lines(self.name, &place, columns));
            tokio::select! {
                () = screen.until_left() => return Ok(()),
                Some(looked) = looks.recv() => knowledge.take(looked),
                _ = changes.next() => hints.notify_one(),
                () = tokio::time::sleep(REDRAW_EVERY) => {}
            }
        }
    }

    /// Looks beside the drawing, again and again and at each hint.
    fn keep_looking(&self) -> (Arc<Notify>, mpsc::Receiver<Looked>) {
        let hints = Arc::new(Notify::new());
        let hinted = Arc::clone(&hints);
        let (send, looks) = mpsc::channel(1);
        let (observer, tenure) =
            (self.store_observer.observer.clone(), self.store_observer.tenure.clone());
        tokio::spawn(async move {
            loop {
                let looked = async {
                    let sight = Sight::of(&observer).await?;
                    Ok((sight, observer.history(TERMS_SHOWN * 3).await?))
                };
                let looked = looked.await.map_err(|error| blame(&tenure, error));
                if send.send(looked).await.is_err() {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                    () = hinted.notified() => {}
                }
            }
        });
        (hints, looks)
    }
}

type Looked = Result<(Sight, Vec<HistoryEntry>), Failure>;
