//! From the requests to whoever tells of them: bounded, and never waited for.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::sync::{Notify, mpsc};

use super::open::Finished;

/// Requests that wait to be told of; more are forgotten, and counted.
const MOST: usize = 8192;

/// Where finished requests are put.
pub struct Queue {
    to: mpsc::Sender<Finished>,
    shared: Arc<Shared>,
}

/// Where they are taken out.
pub struct Arrivals {
    from: mpsc::Receiver<Finished>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// It is half full. Before, nobody is woken: that would cost every request a system call.
    filling: Notify,
    /// Spans that had no room.
    dropped: AtomicU64,
}

pub fn queue() -> (Arc<Queue>, Arrivals) {
    let (to, from) = mpsc::channel(MOST);
    let shared = Arc::<Shared>::default();
    let queue = Queue {
        to,
        shared: Arc::clone(&shared),
    };
    (Arc::new(queue), Arrivals { from, shared })
}

impl Queue {
    pub(super) fn put(&self, finished: Finished) {
        let spans = finished.spans();
        if self.to.try_send(finished).is_err() {
            self.shared.dropped.fetch_add(spans, Relaxed);
        } else if self.to.capacity() < MOST / 2 {
            self.shared.filling.notify_one();
        }
    }
}

impl Arrivals {
    /// Resolves once it is half full.
    pub(super) async fn filling(&self) {
        self.shared.filling.notified().await;
    }

    /// What is there, up to `most` requests.
    pub(super) fn take(&mut self, most: usize) -> Vec<Finished> {
        std::iter::from_fn(|| self.from.try_recv().ok())
            .take(most)
            .collect()
    }

    /// Spans that had no room since this was asked last.
    pub(super) fn dropped(&self) -> u64 {
        self.shared.dropped.swap(0, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_has_no_room_is_forgotten_and_counted() {
        let (queue, mut arrivals) = queue();
        for _ in 0..MOST + 3 {
            queue.put(Finished::default());
        }
        assert_eq!(arrivals.dropped(), 3, "each is one span");
        assert_eq!(arrivals.dropped(), 0);
        assert_eq!(arrivals.take(10).len(), 10);
        assert_eq!(arrivals.take(MOST).len(), MOST - 10);
        assert!(arrivals.take(1).is_empty());
    }

    #[tokio::test]
    async fn half_full_it_is_called_for() {
        let (queue, arrivals) = queue();
        for _ in 0..MOST / 2 {
            queue.put(Finished::default());
        }
        let called = tokio::time::timeout(Duration::ZERO, arrivals.filling()).await;
        assert!(called.is_err(), "too early");
        queue.put(Finished::default());
        arrivals.filling().await;
    }
}
