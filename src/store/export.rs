//! Records as they leave the ledger: which of them, and in what form. A page is in memory at once.

use serde_json::Value;

use super::{
    LedgerLine, StoreError,
    reader::{Reader, Stretch, narrowed},
};

/// Records that are in memory at once.
const PAGE: i64 = 1000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    Jsonl,
    Csv,
}

/// Which records; what is absent is not asked for, all that is there must hold.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Any of them; empty: every kind.
    pub kinds: Vec<String>,
    /// Name of the client key.
    pub key: Option<String>,
    /// Milliseconds since 1970, inclusive.
    pub from_ms: Option<i64>,
    /// Exclusive.
    pub to_ms: Option<i64>,
}

/// An export on its way: what is written meanwhile is not part of it, so that it ends.
pub struct Export {
    selection: Selection,
    form: Form,
    rest: Stretch,
    headed: bool,
}

impl Export {
    /// Only records after the number `after`.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn begin(
        reader: &mut dyn Reader,
        selection: Selection,
        form: Form,
        after: i64,
    ) -> Result<Self, StoreError> {
        let up_to = reader.last_seq().await?;
        let within = Stretch { after, up_to };
        let rest = narrowed(reader, within, selection.from_ms, selection.to_ms).await?;
        Ok(Self {
            selection,
            form,
            rest,
            headed: false,
        })
    }

    /// The numbers of the records that are still to be looked at.
    pub fn rest(&self) -> Stretch {
        self.rest
    }

    /// The next page as text, each record with its line end; it is empty where the page had no
    /// record that was asked for. `None` at the end.
    ///
    /// # Errors
    /// The database does not answer: the export is not whole.
    pub async fn next(&mut self, reader: &mut dyn Reader) -> Result<Option<String>, StoreError> {
        let mut text = String::new();
        if !self.headed && self.form == Form::Csv {
            text = csv_head();
        }
        let most = PAGE.min(self.rest.up_to - self.rest.after);
        let lines = if most > 0 {
            reader.lines_after(self.rest.after, most).await?
        } else {
            Vec::new()
        };
        let Some(last) = lines.last() else {
            let only_head = !std::mem::replace(&mut self.headed, true) && !text.is_empty();
            return Ok(only_head.then_some(text));
        };
        self.headed = true;
        self.rest.after = last.seq;
        for line in lines.iter().filter(|line| line.seq <= self.rest.up_to) {
            let record: Value = serde_json::from_str(&line.body).unwrap_or_default();
            if self.selection.wants(&record) {
                match self.form {
                    Form::Jsonl => text.push_str(&line.to_json().to_string()),
                    Form::Csv => csv_line(&mut text, line, &record),
                }
                text.push_str(self.form.line_end());
            }
        }
        Ok(Some(text))
    }
}

impl Selection {
    fn wants(&self, record: &Value) -> bool {
        let text = |name| record.get(name).and_then(Value::as_str);
        let at = record.get("at").and_then(Value::as_i64);
        let kind = text("kind").unwrap_or_default();
        (self.kinds.is_empty() || self.kinds.iter().any(|wanted| wanted == kind))
            && self
                .key
                .as_deref()
                .is_none_or(|key| text("key") == Some(key))
            && self.from_ms.is_none_or(|from| at >= Some(from))
            && self.to_ms.is_none_or(|to| at < Some(to))
    }
}

impl Form {
    /// RFC 4180 wants both characters.
    fn line_end(self) -> &'static str {
        match self {
            Self::Jsonl => "\n",
            Self::Csv => "\r\n",
        }
    }
}

/// Members of a record that have a column each; the rest is in the last column.
const MEMBERS: &[&str] = &[
    "kind",
    "request_id",
    "key",
    "tenant",
    "policy",
    "run",
    "step",
    "requested_model",
    "resolved_model",
    "provider",
    "code",
    "status",
    "rule",
    "tool",
    "blocked",
    "delivered",
    "approval",
    "outcome",
    "input_tokens",
    "output_tokens",
    "cost_nano_usd",
    "estimated",
    "duration_ms",
];

fn csv_head() -> String {
    format!("seq,at,{},digest,record\r\n", MEMBERS.join(","))
}

fn csv_line(text: &mut String, line: &LedgerLine, record: &Value) {
    let at = record.get("at").and_then(Value::as_i64).unwrap_or_default();
    let time = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    text.push_str(&format!("{},{time:.3}", line.seq));
    for name in MEMBERS {
        text.push(',');
        match record.get(*name) {
            None | Some(Value::Null) => {}
            Some(Value::String(value)) => csv_text(text, value),
            Some(value) => csv_text(text, &value.to_string()),
        }
    }
    text.push(',');
    text.push_str(&hex::encode(line.digest));
    text.push(',');
    csv_text(text, &line.body);
}

/// Models make up names of tools, and a spreadsheet takes a text that begins so for a formula.
const FORMULA: &[char] = &['=', '+', '-', '@', '\t', '\r'];

fn csv_text(to: &mut String, value: &str) {
    let is_number = value.parse::<i64>().is_ok();
    let guard = if value.starts_with(FORMULA) && !is_number {
        "'"
    } else {
        ""
    };
    if value.contains([',', '"', '\r', '\n']) {
        to.push_str(&format!("\"{guard}{}\"", value.replace('"', "\"\"")));
    } else {
        to.push_str(guard);
        to.push_str(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_text_stays_one_cell_and_is_no_formula() {
        let cell = |value| {
            let mut text = String::new();
            csv_text(&mut text, value);
            text
        };
        assert_eq!(cell("plain"), "plain");
        assert_eq!(cell("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
        assert_eq!(cell("=1+1"), "'=1+1");
        assert_eq!(cell("@x,y"), "\"'@x,y\"");
        assert_eq!(cell("-5"), "-5");
    }

    #[test]
    fn all_that_is_asked_for_must_hold() {
        let record = json!({"at": 10, "kind": "started", "key": "k1"});
        let wants = |change: fn(&mut Selection)| {
            let mut selection = Selection::default();
            change(&mut selection);
            selection.wants(&record)
        };
        assert!(wants(|_| {}));
        assert!(wants(|of| of.kinds = vec!["other".into(), "started".into()]));
        assert!(!wants(|of| of.kinds = vec!["other".into()]));
        assert!(!wants(|of| of.key = Some("k2".into())));
        assert!(wants(|of| (of.from_ms, of.to_ms) = (Some(10), Some(11))));
        assert!(!wants(|of| of.from_ms = Some(11)));
        assert!(!wants(|of| of.to_ms = Some(10)));
    }
}
