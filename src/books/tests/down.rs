//! A store that does not answer: what is refused, what goes on, and that it comes back whole.

use std::sync::Mutex;

use tokio::sync::watch;

use super::*;
use crate::{
    engine::{budget::MINUTE_MS, record::Refused},
    store::{
        Answer, Batch, GrantReply,
        approvals::{Approval, ApprovalStore, Parked, Recorded, Verdict},
    },
};

/// A real store behind a switch.
struct Switched {
    store: Sqlite,
    state: watch::Receiver<Answers>,
    summed: Arc<Mutex<Vec<u64>>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    Well,
    WithErrors,
    /// Not before it is switched again.
    Never,
}

impl Store for Switched {
    fn commit<'a>(&'a mut self, batch: &'a Batch) -> Answer<'a, Vec<GrantReply>> {
        Box::pin(async {
            if *self.state.borrow() == Answers::WithErrors {
                return Err(StoreError::Down("disk full".to_owned()));
            }
            let well = |state: &Answers| *state == Answers::Well;
            if self.state.wait_for(well).await.is_err() {
                return Err(StoreError::Down("gone".to_owned()));
            }
            let counts = batch
                .records
                .iter()
                .filter_map(|record| match &record.event {
                    Event::RefusalsSummed(summary) => Some(summary.count),
                    _ => None,
                });
            self.summed.lock().unwrap().extend(counts);
            self.store.commit(batch).await
        })
    }

    fn recover(&mut self, now_ms: i64) -> Answer<'_, Vec<(String, i64, u64)>> {
        self.store.recover(now_ms)
    }

    fn run<'a>(&'a mut self, key: &'a str, id: &'a str) -> Answer<'a, Option<String>> {
        self.store.run(key, id)
    }

    fn seals(&mut self) -> Answer<'_, Vec<crate::engine::policy::Edition>> {
        self.store.seals()
    }

    fn owners<'a>(&'a mut self, ids: &'a [String]) -> Answer<'a, Vec<Option<crate::store::Owner>>> {
        self.store.owners(ids)
    }

    fn forget(&mut self) -> Answer<'_, ()> {
        self.store.forget()
    }

    fn close(&mut self) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.store.close()
    }
}

/// Approvals are the real store's.
impl ApprovalStore for Switched {
    fn park<'a>(&'a mut self, parked: &'a Parked, calls: &'a [Approval]) -> Answer<'a, ()> {
        self.store.park(parked, calls)
    }

    fn parked_for<'a>(&'a mut self, of: &'a str, now_ms: i64) -> Answer<'a, Option<Parked>> {
        self.store.parked_for(of, now_ms)
    }

    fn conversations(&mut self, now_ms: i64) -> Answer<'_, Vec<String>> {
        self.store.conversations(now_ms)
    }

    fn approvals_of<'a>(&'a mut self, parked: &'a str) -> Answer<'a, Vec<Approval>> {
        self.store.approvals_of(parked)
    }

    fn claim<'a>(&'a mut self, parked: &'a str) -> Answer<'a, bool> {
        self.store.claim(parked)
    }

    fn decide<'a>(&'a mut self, verdict: &'a Verdict) -> Answer<'a, Recorded> {
        self.store.decide(verdict)
    }

    fn unnoted(&mut self, now_ms: i64) -> Answer<'_, Vec<Approval>> {
        self.store.unnoted(now_ms)
    }

    fn untold(&mut self, now_ms: i64) -> Answer<'_, Vec<Approval>> {
        self.store.untold(now_ms)
    }

    fn tell<'a>(&'a mut self, approval: &'a str) -> Answer<'a, ()> {
        self.store.tell(approval)
    }
}

struct Broken {
    place: Place,
    books: Books,
    switch: watch::Sender<Answers>,
    summed: Arc<Mutex<Vec<u64>>>,
}

impl Broken {
    async fn new(go_on_when_down: bool) -> Self {
        let place = Place::new();
        let (switch, state) = watch::channel(Answers::Well);
        let summed = Arc::default();
        let store = Switched {
            store: Sqlite::open(&place.file()).await.unwrap(),
            state,
            summed: Arc::clone(&summed),
        };
        let books = Books::open(Box::new(store), place.clock.clone(), go_on_when_down)
            .await
            .unwrap();
        Self {
            place,
            books,
            switch,
            summed,
        }
    }

    /// Switches the store off and returns when the books have found out.
    async fn breaks(&self, how: Answers) {
        self.switch.send_replace(how);
        self.books.record(None, Event::Started { version: "" });
        let mut down = self.books.0.down.subscribe();
        down.wait_for(|down| *down).await.unwrap();
    }

    async fn mends(&self) {
        self.switch.send_replace(Answers::Well);
        let mut down = self.books.0.down.subscribe();
        down.wait_for(|down| !*down).await.unwrap();
    }

    async fn reserve(&self, purse: &Purse, tokens: u64) -> Result<Reservation, Refusal> {
        let now_ms = self.place.clock.now_ms();
        purse.reserve(&self.books, &need(tokens, 0), now_ms).await
    }
}

fn total_tokens(limit: u64) -> Vec<LimitSpec> {
    let budget = Budget {
        total: Amounts {
            tokens: Some(limit),
            ..Amounts::default()
        },
        ..Budget::none()
    };
    LimitSpec::of_key("k", &RateLimits::default(), &budget)
}

fn requests_per_minute(limit: u64) -> Vec<LimitSpec> {
    let rate = RateLimits {
        requests_per_minute: std::num::NonZeroU64::new(limit),
        ..RateLimits::default()
    };
    LimitSpec::of_key("k", &rate, &Budget::none())
}

fn used(tokens: u64) -> Actual {
    Actual { tokens, cost: 0 }
}

fn is_unavailable(result: &Result<Reservation, Refusal>) -> bool {
    matches!(result, Err(Refusal::Unavailable))
}

#[tokio::test]
async fn refuse_refuses_until_the_store_answers_again_and_nothing_is_lost_or_counted_twice() {
    for how in [Answers::WithErrors, Answers::Never] {
        let broken = Broken::new(false).await;
        let limits = total_tokens(1_000);
        let purse = broken.books.purse(&"k".into(), &limits, AtOnce::default());
        let before = broken.reserve(&purse, 100).await.unwrap();
        broken.breaks(how).await;
        assert!(broken.books.failure().is_some() && broken.books.refuses().is_some());
        before.settle(used(70), NOON_MS);
        for _ in 0..3 {
            assert!(is_unavailable(&broken.reserve(&purse, 1).await), "{how:?}");
            assert!(matches!(
                broken.books.flushed().await,
                Err(Refusal::Unavailable)
            ));
        }
        broken.mends().await;
        assert_eq!(broken.books.refuses(), None);
        let after = broken.reserve(&purse, 930).await.unwrap();
        after.settle(used(30), NOON_MS);
        broken.books.close().await;
        assert_eq!(broken.place.standing(&limits[0]).await, (100, 0), "{how:?}");
    }
}

#[tokio::test]
async fn who_waits_for_the_store_is_told_as_soon_as_it_is_known_to_be_down() {
    let broken = Broken::new(false).await;
    let purse = broken
        .books
        .purse(&"k".into(), &total_tokens(100), AtOnce::default());
    broken.switch.send_replace(Answers::WithErrors);
    assert!(is_unavailable(&broken.reserve(&purse, 1).await));
    broken.mends().await;
    assert!(
        broken.reserve(&purse, 100).await.is_ok(),
        "nothing stayed held"
    );
}

#[tokio::test]
async fn local_spends_what_is_leased_and_not_a_token_more() {
    let broken = Broken::new(true).await;
    let limits = total_tokens(16_000);
    let purse = broken.books.purse(&"k".into(), &limits, AtOnce::default());
    // Two questions within a second: the second slice is larger than its need.
    for _ in 0..2 {
        broken
            .reserve(&purse, 100)
            .await
            .unwrap()
            .settle(used(100), NOON_MS);
    }
    broken.books.flushed().await.unwrap();
    broken.breaks(Answers::WithErrors).await;
    let leased = broken.place.standing(&limits[0]).await;
    assert_eq!(leased, (200, 200));
    let mut spent = 0;
    loop {
        let reservation = broken.reserve(&purse, 60).await;
        if is_unavailable(&reservation) {
            break;
        }
        reservation.unwrap().settle(used(60), NOON_MS);
        spent += 60;
    }
    assert_eq!(spent, 180, "three fit the slice");
    assert_eq!(broken.books.refuses(), None, "other keys go on");
    broken.mends().await;
    broken.reserve(&purse, 60).await.unwrap().release(NOON_MS);
    broken.books.close().await;
    assert_eq!(broken.place.standing(&limits[0]).await, (380, 0));
}

#[tokio::test]
async fn local_makes_do_with_a_smaller_cap() {
    let broken = Broken::new(true).await;
    let purse = broken
        .books
        .purse(&"k".into(), &total_tokens(16_000), AtOnce::default());
    for _ in 0..2 {
        broken
            .reserve(&purse, 100)
            .await
            .unwrap()
            .settle(used(100), NOON_MS);
    }
    broken.books.flushed().await.unwrap();
    broken.breaks(Answers::WithErrors).await;
    let long = Need {
        output_cap: Some(4_000),
        min_output: 16,
        ..need(50, 0)
    };
    let held = purse.reserve(&broken.books, &long, NOON_MS).await.unwrap();
    assert_eq!(held.output_cap, Some(150));
}

#[tokio::test]
async fn local_counts_a_minute_by_itself_and_the_store_gives_nothing_on_top() {
    let broken = Broken::new(true).await;
    let purse = broken
        .books
        .purse(&"k".into(), &requests_per_minute(10), AtOnce::default());
    let mut held = vec![broken.reserve(&purse, 0).await.unwrap()];
    broken.breaks(Answers::WithErrors).await;
    for _ in 0..20 {
        held.extend(broken.reserve(&purse, 0).await);
    }
    assert_eq!(held.len(), 10);
    let refused = broken.reserve(&purse, 0).await;
    assert!(matches!(refused, Err(Refusal::Short(short)) if short.retry_after.is_some()));
    broken.mends().await;
    broken.place.clock.advance(MINUTE_MS - 1);
    assert!(
        broken.reserve(&purse, 0).await.is_err(),
        "ten within sixty seconds"
    );
    broken.place.clock.advance(200);
    let mut fresh = 0;
    while let Ok(one) = broken.reserve(&purse, 0).await {
        held.push(one);
        fresh += 1;
    }
    assert_eq!(fresh, 10);
}

/// A question was on its way to the store as it broke: it is answered when the store is back,
/// with what was meanwhile taken without it.
#[tokio::test]
async fn a_late_grant_is_not_spent_on_top_of_what_was_taken_without_it() {
    let broken = Broken::new(true).await;
    let purse = broken
        .books
        .purse(&"k".into(), &requests_per_minute(10), AtOnce::default());
    broken.switch.send_replace(Answers::Never);
    let mut admitted = Vec::new();
    while let Ok(one) = broken.reserve(&purse, 0).await {
        admitted.push(one);
    }
    assert_eq!(admitted.len(), 10);
    broken.mends().await;
    broken.books.flushed().await.unwrap();
    assert!(broken.reserve(&purse, 0).await.is_err());
}

#[tokio::test]
async fn refusals_do_not_pile_up_in_memory_and_their_number_is_told_later() {
    let broken = Broken::new(false).await;
    broken.breaks(Answers::WithErrors).await;
    let refuse = || {
        let refused = Refused {
            subject: Default::default(),
            code: "guard_unavailable",
            status: 503,
            rule: None,
            limits: Vec::new(),
            source: None,
            duration_ms: 0,
        };
        Event::RequestRefused(Box::new(refused))
    };
    for _ in 0..MOST_QUEUED + 700 {
        broken.books.record(None, refuse());
    }
    let queued = broken.books.0.queued.load(Ordering::Acquire);
    assert!(queued <= MOST_QUEUED + 1, "{queued} wait in memory");
    broken.mends().await;
    broken.books.close().await;
    let summed: u64 = broken.summed.lock().unwrap().iter().sum();
    assert_eq!(summed + queued as u64, MOST_QUEUED as u64 + 700 + 1);
}

#[tokio::test]
async fn the_end_does_not_wait_for_a_dead_store_and_open_slices_count_as_spent_afterwards() {
    let broken = Broken::new(false).await;
    let limits = total_tokens(1_000);
    let purse = broken.books.purse(&"k".into(), &limits, AtOnce::default());
    let held = broken.reserve(&purse, 300).await.unwrap();
    broken.books.flushed().await.unwrap();
    let (_, leased) = broken.place.standing(&limits[0]).await;
    assert!(leased >= 300);
    broken.breaks(Answers::WithErrors).await;
    held.settle(used(10), NOON_MS);
    broken.books.close().await;
    assert!(
        broken.books.0.to_keeper.is_closed(),
        "the writing thread has ended"
    );
    let Broken { place, .. } = broken;
    let books = place.books().await;
    assert_eq!(place.standing(&limits[0]).await, (leased, 0));
    books.close().await;
}
