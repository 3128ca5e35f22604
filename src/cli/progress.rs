//! How far long work is, on standard error: standard output belongs to the result.

use std::io::{IsTerminal as _, Write as _, stderr};

/// Records between two lines; shorter work says nothing.
const STEP: i64 = 100_000;

pub(super) struct Progress {
    /// What is done to the records, as a person reads it.
    doing: &'static str,
    of: i64,
    told: i64,
    terminal: bool,
}

impl Progress {
    pub fn of(doing: &'static str, records: i64) -> Self {
        Self {
            doing,
            of: records,
            told: 0,
            terminal: stderr().is_terminal(),
        }
    }

    pub fn at(&mut self, done: i64) {
        let step = done / STEP;
        if self.of <= STEP || step == self.told {
            return;
        }
        self.told = step;
        let percent = done.saturating_mul(100) / self.of;
        let (start, end) = if self.terminal {
            ("\r", "")
        } else {
            ("", "\n")
        };
        // Who closed standard error does not want to know.
        let _ = write!(
            stderr(),
            "{start}{} {done} of {} records ({percent} %){end}",
            self.doing,
            self.of
        );
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal && self.told > 0 {
            let _ = writeln!(stderr());
        }
    }
}
