//! Layer 8's question: does the run go round in circles?

use super::{Made, Past, Run, Stop};

/// `[loops]`. An absent member looks for nothing of its kind.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoopRules {
    /// So often the same call may be made since the last user input.
    pub same_call: Option<u64>,
    /// So many rounds of the same sequence of calls.
    pub cycle_rounds: Option<u64>,
    /// So often a tool may give the same answer in a row.
    pub same_output: Option<u64>,
    pub on_open: OnOpen,
}

/// What a loop does to its run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OnOpen {
    /// Every further request is refused until a user says something new.
    #[default]
    Stop,
    /// The call is blocked and the run goes on.
    Retry,
    /// The call is blocked and the run goes on at the next route; without one, as by `Stop`.
    Fallback,
    /// As by `Stop`, and it is recorded that a person has to look.
    Escalate,
}

/// Longer sequences are no cycles that anybody waits for.
const LONGEST_CYCLE: usize = 8;

impl LoopRules {
    pub fn is_empty(&self) -> bool {
        self.same_call.is_none() && self.cycle_rounds.is_none() && self.same_output.is_none()
    }
}

impl Run {
    /// Whether this call would be one too many.
    pub fn check_loops(&self, past: &Past, rules: &LoopRules, call: &Made) -> Result<(), Stop> {
        // Whichever shows more: the client may have left something out, or we may be new here.
        let recent = if past.recent.len() > self.recent.len() {
            &past.recent
        } else {
            &self.recent
        };
        let stop = |rule, message| Stop {
            code: "loop_detected",
            rule,
            message,
        };
        let same = recent.iter().filter(|made| *made == call).count() as u64;
        if let Some(most) = rules.same_call
            && same >= most
        {
            let message = format!(
                "The same call was made {same} times since the last user input; try something \
                 else or ask the user."
            );
            return Err(stop("loops.same_call", message));
        }
        if let Some(rounds) = rules.cycle_rounds
            && let Some(length) = cycle(recent, call, rounds)
        {
            let message = format!(
                "The same {length} calls were made in the same order {rounds} times; try \
                 something else or ask the user."
            );
            return Err(stop("loops.cycle_rounds", message));
        }
        if let Some(most) = rules.same_output
            && let Some(last) = past.outputs.last()
            && past
                .outputs
                .iter()
                .rev()
                .take_while(|one| *one == last)
                .count() as u64
                >= most
        {
            let message = format!(
                "Tools gave the same answer {most} times in a row; more calls make no progress."
            );
            return Err(stop("loops.same_output", message));
        }
        Ok(())
    }
}

/// The length of a sequence of at least two different calls that has been made `rounds` times in a
/// row and that `call` would begin again.
fn cycle(recent: &[Made], call: &Made, rounds: u64) -> Option<usize> {
    let rounds = usize::try_from(rounds).ok()?;
    (2..=LONGEST_CYCLE).find(|length| {
        let Some(tail) = recent.len().checked_sub(length * rounds) else {
            return false;
        };
        let tail = recent.get(tail..).unwrap_or_default();
        let first = tail.get(..*length).unwrap_or_default();
        let repeats = tail.chunks(*length).all(|round| round == first);
        let varies = first.iter().any(|made| Some(made) != first.first());
        repeats && varies && first.first() == Some(call)
    })
}
