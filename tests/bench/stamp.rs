//! The send time that each streamed event carries in its text, so that the receiver knows the
//! delay of every single event, across processes.

use std::time::{SystemTime, UNIX_EPOCH};

/// Stands before each stamp; appears nowhere else in a stream.
pub const MARK: u8 = b'@';
/// A stamp that is not yet written.
pub const BLANK: &str = "@0000000000000000000";

/// Nanoseconds since 1970, on the clock that all processes of the machine share.
pub fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

/// Writes the time over the blank that starts at `at`.
pub fn write(event: &mut [u8], at: usize, now: u64) {
    let mut rest = now;
    for digit in event[at + 1..at + BLANK.len()].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
}

/// What one receiver of a stream has seen.
#[derive(Default)]
pub struct Seen {
    pub events: u64,
    /// Nanoseconds from send to receipt. A stamp that a read cut in two counts as an event only.
    pub delays: Vec<u64>,
}

impl Seen {
    pub fn read(&mut self, data: &[u8]) {
        let mut now_once = None;
        for at in memchr::memchr_iter(MARK, data) {
            self.events += 1;
            let digits = data.get(at + 1..at + BLANK.len());
            let sent = digits.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
            if let Some(sent) = sent {
                self.delays
                    .push(now_once.get_or_insert_with(now).saturating_sub(sent));
            }
        }
    }
}
