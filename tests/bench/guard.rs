//! What judging costs by itself: the product's own judge, fed in this process with the events that
//! the loads send. The product has no switch that turns its guard off, so "off" is what is left
//! of the proxy's cost once this is taken away.
//!
//! Best of several turns: whatever else runs on the machine can only make a turn slower.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use tallygate::engine::{
    chain::{CallGuard, Delivery, Offered},
    chat::{CallRules, ChatStream, StreamRules},
    policy::ToolRules,
};

use crate::mock;

/// Measured in turns of this many answers.
const ANSWERS: usize = 200;
const TURNS: usize = 15;
/// Pieces of one call, and KiB of one call's arguments.
const PIECES: [usize; 5] = [25, 50, 100, 200, 400];
const KIB: [usize; 4] = [75, 150, 300, 600];

/// Microseconds of judging a text event, when all events of an answer arrive together and when
/// each arrives by itself.
pub struct Cost {
    pub together: f64,
    pub each: f64,
}

pub fn text() -> Cost {
    let events = mock::text_events();
    let whole = vec![Bytes::from(events.concat())];
    let count = events.len();
    let each: Vec<Bytes> = events.into_iter().map(Bytes::from).collect();
    Cost {
        together: best(&whole) / count as f64,
        each: best(&each) / count as f64,
    }
}

/// Rows of the report: how long a text event that arrives by itself is kept for being judged.
pub fn delay() -> Vec<(String, f64)> {
    let events: Vec<Bytes> = mock::text_events().into_iter().map(Bytes::from).collect();
    let rules = rules();
    let mut delays = Vec::with_capacity(ANSWERS * events.len());
    for _ in 0..ANSWERS {
        let mut stream = ChatStream::new(rules.clone());
        let mut out = Vec::new();
        for event in &events {
            let begun = Instant::now();
            stream.feed(event.clone(), &mut out);
            delays.push(begun.elapsed());
            out.clear();
        }
    }
    delays.sort_unstable();
    let row = |share: f64, name: &str| {
        let at = ((delays.len() - 1) as f64 * share) as usize;
        let micros = delays[at].as_secs_f64() * 1e6;
        (
            format!("a text event waits for its judge: {name}, µs"),
            micros,
        )
    };
    vec![row(0.5, "p50"), row(0.99, "p99"), row(0.9999, "p99.99")]
}

/// Rows of the report: what a piece of one call costs, and a KiB of its arguments.
pub fn linearity() -> Vec<(String, f64)> {
    let pieces = PIECES.map(|count| {
        let cost = best(&call(count, 6)) / count as f64;
        (
            format!("one call of {count} pieces: judging, µs/piece"),
            cost,
        )
    });
    let sizes = KIB.map(|kib| {
        let cost = best(&call(kib, 1024)) / kib as f64;
        (format!("one call of {kib} KiB: judging, µs/KiB"), cost)
    });
    pieces.into_iter().chain(sizes).collect()
}

/// Microseconds for one answer.
fn best(pieces: &[Bytes]) -> f64 {
    let rules = rules();
    let turns = (0..TURNS).map(|_| {
        let begun = Instant::now();
        for _ in 0..ANSWERS {
            judge(pieces, &rules);
        }
        begun.elapsed().as_secs_f64() * 1e6 / ANSWERS as f64
    });
    turns.fold(f64::INFINITY, f64::min)
}

fn judge(pieces: &[Bytes], rules: &StreamRules) {
    let mut stream = ChatStream::new(rules.clone());
    let mut out = Vec::new();
    for piece in pieces {
        stream.feed(piece.clone(), &mut out);
        out.clear();
    }
    stream.end(false, &mut out);
    assert!(
        stream.is_over() && stream.tally().error.is_none(),
        "{:?}",
        stream.tally()
    );
}

/// The events of an answer that makes one call in `count` pieces of `size` bytes.
fn call(count: usize, size: usize) -> Vec<Bytes> {
    let piece = "x".repeat(size);
    let texts = (0..count).map(|at| match at {
        0 => r#"{\"text\":\""#.to_owned(),
        _ if at + 1 == count => r#"\"}"#.to_owned(),
        _ => piece.clone(),
    });
    mock::call_events(texts)
        .into_iter()
        .map(Bytes::from)
        .collect()
}

fn rules() -> StreamRules {
    let mut offered = Offered::default();
    offered.add(None, mock::TOOL, false, None);
    let judge = CallGuard::new(
        "bench@1".into(),
        Arc::new(ToolRules::default()),
        Arc::default(),
        "bench".into(),
        Arc::new(offered),
        Arc::default(),
    );
    StreamRules {
        hide_usage: false,
        largest_event: 16 << 20,
        most_withheld: 16 << 20,
        calls: CallRules {
            judge: Arc::new(judge),
            delivery: Delivery::default(),
            policy: "bench@1".into(),
            decision: "dec_0".to_owned(),
            rulings: Some(Arc::from([])),
        },
    }
}
