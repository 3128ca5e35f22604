//! What an answer will consist of, before it takes the form of an API.
//!
//! `sandbox-agent` obeys these lines of the last user message; other lines are ignored:
//!
//! | line | does |
//! |---|---|
//! | `call NAME {json}` | proposes a tool call; several lines are parallel calls. Arguments go out as written, broken JSON too; none: `{}` |
//! | `say TEXT` | answers with text |
//! | `sleep MS` | waits there; 10 minutes at most in one answer |
//! | `chunks N` | streams each text and each argument string in N pieces |
//! | `usage none` | reports no usage |
//! | `fail STATUS` | answers with this status (400 to 599) and an error |
//! | `break` | cuts the connection half-way through the answer |
//! | `then` | what follows is for the next turn, when the tools have answered |
//! | `obey` | alone in a later turn: obeys the lines of what the tools answered, as a gullible model would |
//!
//! So `call a {}`, `then`, `call b {}`, `then`, `say done` is a loop of three turns. A turn that
//! no lines are left for tells what the tools answered.

use std::time::Duration;

use super::{
    refusal::Refusal,
    request::{Asked, Model, tokens},
};

const MAX_SLEEP: Duration = Duration::from_secs(600);
/// Of a tool result that the agent talks about.
const QUOTED_CHARS: usize = 200;
const HELP: &str = "I obey lines of your message: call NAME {json}, say TEXT, sleep MS, \
                    chunks N, usage none, fail STATUS, break, then, obey.";
/// Stands alone on the line between the lines of two turns.
const NEXT_TURN: &str = "then";
/// The only line of its turn.
const OBEY_TOOLS: &str = "obey";

pub(super) struct Plan {
    pub parts: Vec<Part>,
    /// The cap cut the answer short.
    pub cut_short: bool,
    pub usage: bool,
    /// Drop the connection half-way.
    pub broken: bool,
    chunks: Option<usize>,
    fail: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(String),
    Call { name: String, arguments: String },
    Sleep(Duration),
}

impl Part {
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// Name and arguments.
    pub fn call(&self) -> Option<(&str, &str)> {
        match self {
            Self::Call { name, arguments } => Some((name, arguments)),
            _ => None,
        }
    }
}

impl Plan {
    pub fn new(asked: &Asked) -> Self {
        let mut plan = Self {
            parts: Vec::new(),
            cut_short: false,
            usage: true,
            broken: false,
            chunks: None,
            fail: None,
        };
        match asked.model {
            Model::Echo => plan.say(&asked.user_text),
            Model::Agent => plan.act(asked),
        }
        plan.shorten(asked.max_bytes);
        plan
    }

    fn act(&mut self, asked: &Asked) {
        let lines: Vec<&str> = asked.user_text.lines().map(str::trim).collect();
        let mut turns = lines.split(|line| *line == NEXT_TURN);
        let first = turns.clone().next().unwrap_or_default();
        match (turns.nth(asked.answered_turns), asked.tool_results.last()) {
            (Some([OBEY_TOOLS]), Some(_)) => {
                let answered = asked.tool_results.iter().flat_map(|text| text.lines());
                self.obey(&answered.map(str::trim).collect::<Vec<_>>());
            }
            (Some(turn), _) => self.obey(turn),
            (None, Some(last)) => self.say(&about(asked.tool_results.len(), last)),
            (None, None) => self.obey(first),
        }
    }

    fn obey(&mut self, lines: &[&str]) {
        let obeyed = lines
            .iter()
            .filter(|line| self.obey_line(line).is_some())
            .count();
        if obeyed == 0 {
            self.say(HELP);
        }
    }

    /// `None`: not a line to obey.
    fn obey_line(&mut self, line: &str) -> Option<()> {
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        match word {
            "call" if !rest.is_empty() => self.call(rest),
            "say" => self.say(rest),
            "sleep" => self.sleep(rest.parse().ok()?),
            "chunks" => self.chunks = Some(rest.parse().ok().filter(|count| *count > 0)?),
            "usage" if rest == "none" => self.usage = false,
            "fail" => {
                self.fail = Some(
                    rest.parse()
                        .ok()
                        .filter(|status| (400..600).contains(status))?,
                );
            }
            "break" if rest.is_empty() => self.broken = true,
            _ => return None,
        }
        Some(())
    }

    /// All texts of an answer together read as lines.
    fn say(&mut self, text: &str) {
        let follows = self.parts.iter().any(|part| part.text().is_some());
        let line = if follows {
            format!("\n{text}")
        } else {
            text.to_owned()
        };
        match self.parts.last_mut() {
            Some(Part::Text(before)) => before.push_str(&line),
            _ => self.parts.push(Part::Text(line)),
        }
    }

    fn call(&mut self, rest: &str) {
        let (name, arguments) = rest.split_once(char::is_whitespace).unwrap_or((rest, "{}"));
        self.parts.push(Part::Call {
            name: name.to_owned(),
            arguments: arguments.trim().to_owned(),
        });
    }

    fn sleep(&mut self, millis: u64) {
        let left = MAX_SLEEP.saturating_sub(self.total_sleep());
        self.parts
            .push(Part::Sleep(Duration::from_millis(millis).min(left)));
    }

    /// Ends the answer where the cap is reached. A call whose name does not fit is not begun.
    fn shorten(&mut self, max_bytes: usize) {
        let mut left = max_bytes;
        let mut kept = Vec::new();
        for mut part in std::mem::take(&mut self.parts) {
            let (fixed, growing) = match &mut part {
                Part::Sleep(_) => (0, None),
                Part::Text(text) => (0, Some(text)),
                Part::Call { name, arguments } => (name.len(), Some(arguments)),
            };
            if fixed > left {
                self.cut_short = true;
                break;
            }
            left -= fixed;
            if let Some(text) = growing {
                self.cut_short = text.len() > left;
                text.truncate(text.floor_char_boundary(left));
                left -= text.len();
            }
            kept.push(part);
            if self.cut_short {
                break;
            }
        }
        self.parts = kept;
    }

    pub fn failure(&self) -> Option<Refusal> {
        self.fail.map(Refusal::asked_for)
    }

    pub fn total_sleep(&self) -> Duration {
        let sleeps = self.parts.iter().map(|part| match part {
            Part::Sleep(duration) => *duration,
            _ => Duration::ZERO,
        });
        sleeps.sum()
    }

    pub fn has_calls(&self) -> bool {
        self.parts.iter().any(|part| part.call().is_some())
    }

    /// Of one choice.
    pub fn completion_tokens(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| match part {
            Part::Text(text) => text.len(),
            Part::Call { name, arguments } => name.len() + arguments.len(),
            Part::Sleep(_) => 0,
        });
        tokens(bytes.sum())
    }

    /// A text as it is streamed: word by word.
    pub fn text_pieces(&self, text: &str) -> Vec<String> {
        match self.chunks {
            Some(count) => evenly(text, count),
            None => words(text),
        }
    }

    /// Arguments as they are streamed: about eight characters a piece.
    pub fn argument_pieces(&self, arguments: &str) -> Vec<String> {
        evenly(
            arguments,
            self.chunks.unwrap_or(arguments.chars().count().div_ceil(8)),
        )
    }
}

/// What the agent says about the results of the tools it called, so that a loop of calls ends.
fn about(count: usize, last: &str) -> String {
    let quoted: String = last.chars().take(QUOTED_CHARS).collect();
    let dots = if quoted.len() < last.len() { "…" } else { "" };
    match count {
        1 => format!("The tool answered: {quoted}{dots}"),
        _ => format!("{count} tools answered, the last one: {quoted}{dots}"),
    }
}

/// Each piece is a word with the white space before it, so that the pieces join back.
fn words(text: &str) -> Vec<String> {
    let mut pieces: Vec<String> = Vec::new();
    let mut after_word = true;
    for character in text.chars() {
        let in_word = !character.is_whitespace();
        match pieces.last_mut() {
            Some(piece) if in_word || !after_word => piece.push(character),
            _ => pieces.push(character.into()),
        }
        after_word = in_word;
    }
    pieces
}

/// `count` pieces of nearly equal length, or a character each where there are fewer.
fn evenly(text: &str, count: usize) -> Vec<String> {
    let length = text.chars().count();
    let count = count.min(length);
    let mut characters = text.chars();
    (0..count)
        .map(|piece| {
            let size = (piece + 1) * length / count - piece * length / count;
            characters.by_ref().take(size).collect()
        })
        .collect()
}
