//! Random streams, against a reference that collects everything, puts it together over plain
//! values without any haste, and only then judges.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::support::{DONE, relay_cut, rules_for};
use crate::engine::chain::Delivery;

const ALLOWED: &[&str] = &["a", "b", "read_file"];

/// One event of a random stream.
#[allow(clippy::large_enum_variant, reason = "some dozens of them, in a test")]
#[derive(Debug, Clone)]
enum Step {
    Text(u64, String),
    Piece(u64, Piece, Option<String>),
    Legacy(u64, String, Value),
    Finish(u64, String),
    Usage,
    Comment,
}

#[derive(Debug, Clone)]
struct Piece {
    index: Value,
    id: Value,
    name: Value,
    arguments: Value,
}

#[derive(Debug, Clone)]
struct Script {
    steps: Vec<Step>,
    done: bool,
    each: bool,
    crlf: bool,
    escaped: bool,
    cuts: Vec<prop::sample::Index>,
}

fn choice_index() -> impl Strategy<Value = u64> {
    prop_oneof![4 => Just(0), 1 => 0_u64..3]
}

fn name() -> impl Strategy<Value = Value> {
    prop::sample::select(vec![
        json!("a"),
        json!("b"),
        json!("evil"),
        json!("read_"),
        json!("file"),
        json!(""),
        Value::Null,
    ])
}

fn any_piece() -> impl Strategy<Value = Piece> {
    let index = prop::sample::select(vec![
        json!(0),
        json!(0),
        json!(1),
        json!(5),
        json!("0"),
        json!(0.0),
        json!(-1),
        json!(true),
        Value::Null,
        Value::Null,
    ]);
    let id = prop::sample::select(vec![
        json!("id_1"),
        json!("id_2"),
        json!(""),
        Value::Null,
        Value::Null,
    ]);
    let arguments = prop::sample::select(vec![
        json!("{}"),
        json!("{\"x\":"),
        json!("1}"),
        json!(""),
        Value::Null,
        json!({"x": 1}),
        json!("7"),
        json!([1]),
    ]);
    (index, id, name(), arguments).prop_map(|(index, id, name, arguments)| Piece {
        index,
        id,
        name,
        arguments,
    })
}

fn any_step() -> impl Strategy<Value = Step> {
    let text = prop::sample::select(vec!["Hi ", "tool_calls", "\u{e9}\u{1f600}", "\"}\n"]);
    let reason = prop::sample::select(vec!["stop", "tool_calls", "function_call", "length", ""]);
    let arguments = prop::sample::select(vec![
        json!("{}"),
        json!("{\"y\":2}"),
        json!(""),
        Value::Null,
    ]);
    let legacy = prop::sample::select(vec!["a", "evil", ""]);
    prop_oneof![
        3 => (choice_index(), text.clone()).prop_map(|(at, text)| Step::Text(at, text.to_owned())),
        6 => (choice_index(), any_piece(), prop::option::weighted(0.2, text))
            .prop_map(|(at, piece, text)| Step::Piece(at, piece, text.map(str::to_owned))),
        1 => (choice_index(), legacy, arguments)
            .prop_map(|(at, name, arguments)| Step::Legacy(at, name.to_owned(), arguments)),
        2 => (choice_index(), reason).prop_map(|(at, reason)| Step::Finish(at, reason.to_owned())),
        1 => Just(Step::Usage),
        1 => Just(Step::Comment),
    ]
}

/// Calls as real providers stream them, in one of their dialects, interleaved.
fn sane_steps() -> impl Strategy<Value = Vec<Step>> {
    let call = (
        choice_index(),
        prop::sample::select(vec!["a", "b", "evil", "read_file"]),
        prop::sample::select(vec!["{}", "{\"x\":1.10}", "{\"s\":\"\u{e9}\\n\\\"\"}"]),
        prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    );
    let dialect = 0_usize..5;
    (prop::collection::vec(call, 1..5), dialect, any::<bool>()).prop_map(|(calls, dialect, mix)| {
        let mut lanes: Vec<Vec<Step>> = Vec::new();
        let mut numbers: BTreeMap<u64, u64> = BTreeMap::new();
        for (at, (choice, name, arguments, cuts)) in calls.into_iter().enumerate() {
            let number = numbers.entry(choice).or_default();
            let (index, id) = match dialect {
                0 => (json!(*number), json!(format!("id_{at}"))),
                1 => (Value::Null, json!(format!("id_{at}"))),
                2 => (json!(0), json!(format!("id_{at}"))),
                3 => (json!(*number * 3 + 1), json!("")),
                _ => (Value::Null, Value::Null),
            };
            *number += 1;
            let chars: Vec<char> = arguments.chars().collect();
            let mut places: Vec<usize> =
                cuts.iter().map(|cut| cut.index(chars.len() + 1)).collect();
            places.extend([0, chars.len()]);
            places.sort_unstable();
            let first = Piece {
                index,
                id,
                name: json!(name),
                arguments: json!(""),
            };
            let lane = places.windows(2).enumerate().map(|(nth, range)| {
                let text: String = chars[range[0]..range[1]].iter().collect();
                let mut piece = Piece {
                    arguments: json!(text),
                    ..first.clone()
                };
                if nth > 0 {
                    piece.name = if mix { json!("") } else { Value::Null };
                    // Where the index tells nothing, the id has to.
                    piece.id = if dialect == 1 || dialect == 2 {
                        piece.id
                    } else {
                        Value::Null
                    };
                }
                Step::Piece(choice, piece, None)
            });
            lanes.push(lane.collect());
        }
        // Without index and id, only the order tells calls apart.
        let steps: Vec<Step> = if dialect == 4 {
            lanes.concat()
        } else {
            interleaved(lanes)
        };
        let ends = numbers
            .keys()
            .map(|choice| Step::Finish(*choice, "tool_calls".to_owned()));
        steps.into_iter().chain(ends).chain([Step::Usage]).collect()
    })
}

fn interleaved(lanes: Vec<Vec<Step>>) -> Vec<Step> {
    let longest = lanes.iter().map(Vec::len).max().unwrap_or(0);
    let at = |nth: usize| lanes.iter().filter_map(move |lane| lane.get(nth).cloned());
    (0..longest).flat_map(at).collect()
}

fn script() -> impl Strategy<Value = Script> {
    let steps = prop_oneof![prop::collection::vec(any_step(), 0..14), sane_steps()];
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..8);
    (
        steps,
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        any::<bool>(),
        cuts,
    )
        .prop_map(|(steps, done, each, crlf, escaped, cuts)| Script {
            steps,
            done,
            each,
            crlf,
            escaped,
            cuts,
        })
}

impl Step {
    fn choice(&self) -> Option<Value> {
        let choice = |at: &u64, delta: Value, finish: Value| {
            Some(json!({"index": at, "delta": delta, "finish_reason": finish}))
        };
        match self {
            Self::Text(at, text) => choice(at, json!({"content": text}), Value::Null),
            Self::Piece(at, piece, text) => {
                let call = json!({"index": piece.index, "id": piece.id,
                    "function": {"name": piece.name, "arguments": piece.arguments}});
                let mut delta = json!({"tool_calls": [call]});
                if let Some(text) = text {
                    delta["content"] = json!(text);
                }
                choice(at, delta, Value::Null)
            }
            Self::Legacy(at, name, arguments) => {
                let call = json!({"name": name, "arguments": arguments});
                choice(at, json!({"function_call": call}), Value::Null)
            }
            Self::Finish(at, reason) => choice(at, json!({}), json!(reason)),
            Self::Usage | Self::Comment => None,
        }
    }
}

impl Script {
    fn bytes(&self) -> Vec<u8> {
        let mut stream = String::new();
        for step in &self.steps {
            let data = match (step, step.choice()) {
                (Step::Comment, _) => {
                    stream += ": working\n\n";
                    continue;
                }
                (_, Some(choice)) => json!({"id": "chatcmpl-1", "choices": [choice]}),
                (_, None) => json!({"id": "chatcmpl-1", "choices": [],
                    "usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
            };
            let mut data = data.to_string();
            if self.escaped {
                data = data.replace("\"tool_calls\":", "\"tool\\u005fc\\u0061lls\" : ");
            }
            stream += &format!("data: {data}\n\n");
        }
        if self.done {
            stream += DONE;
        }
        if self.crlf {
            stream = stream.replace('\n', "\r\n");
        }
        stream.into_bytes()
    }
}

#[derive(Debug, Default, PartialEq)]
struct Expected {
    text: String,
    calls: Vec<(String, String)>,
    function_call: Option<(String, String)>,
    blocked: bool,
    finish: Option<String>,
}

/// `None`: the stream ends in an error.
fn reference(script: &Script) -> Option<BTreeMap<u64, Expected>> {
    let mut choices: BTreeMap<u64, Vec<&Step>> = BTreeMap::new();
    for step in &script.steps {
        let at = match step {
            Step::Text(at, _)
            | Step::Piece(at, ..)
            | Step::Legacy(at, ..)
            | Step::Finish(at, _) => at,
            Step::Usage | Step::Comment => continue,
        };
        choices.entry(*at).or_default().push(step);
    }
    let told: Vec<bool> = choices.values().map(|steps| ends_well(steps)).collect();
    let finished = script
        .steps
        .iter()
        .any(|step| matches!(step, Step::Finish(_, why) if !why.is_empty()));
    let whole = script.done || finished && told.iter().all(|told| *told);
    if !whole {
        return None;
    }
    Some(
        choices
            .into_iter()
            .map(|(at, steps)| (at, expect(&steps, script.each)))
            .collect(),
    )
}

/// A choice without calls ends well in any case.
fn ends_well(steps: &[&Step]) -> bool {
    let proposes = !drafts(steps).is_empty() || legacy(steps).is_some();
    !proposes
        || steps
            .iter()
            .any(|step| matches!(step, Step::Finish(_, why) if !why.is_empty()))
}

struct Draft {
    index: Value,
    id: String,
    names: Vec<String>,
    arguments: String,
}

fn drafts(steps: &[&Step]) -> Vec<Draft> {
    let mut drafts: Vec<Draft> = Vec::new();
    let mut latest = 0;
    for step in steps {
        let Step::Piece(_, piece, _) = step else {
            continue;
        };
        let index = match &piece.index {
            Value::String(text) => text.parse::<i64>().map_or(Value::Null, Value::from),
            Value::Number(number) => json!(number.as_f64().unwrap() as i64),
            other => other.clone(),
        };
        let id = piece.id.as_str().unwrap_or("").to_owned();
        let name = piece.name.as_str().unwrap_or("").to_owned();
        let mut owner = None;
        for (at, draft) in drafts.iter().enumerate() {
            let fits = if index.is_null() {
                !id.is_empty() && draft.id == id
            } else {
                draft.index == index && (id.is_empty() || draft.id == id)
            };
            if fits {
                owner = Some(at);
            }
        }
        if owner.is_none() && !index.is_null() {
            let last = drafts.iter().rposition(|draft| draft.index == index);
            owner = last.filter(|at| drafts[*at].id.is_empty());
        }
        if owner.is_none()
            && index.is_null()
            && name.is_empty()
            && !drafts.is_empty()
            && (id.is_empty() || drafts[latest].id.is_empty())
        {
            owner = Some(latest);
        }
        let at = owner.unwrap_or_else(|| {
            drafts.push(Draft {
                index,
                id: String::new(),
                names: vec![],
                arguments: String::new(),
            });
            drafts.len() - 1
        });
        latest = at;
        if !id.is_empty() {
            drafts[at].id = id;
        }
        if !name.is_empty() {
            drafts[at].names.push(name);
        }
        drafts[at].arguments += &text_of(&piece.arguments);
    }
    drafts
}

fn text_of(arguments: &Value) -> String {
    match arguments {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn legacy(steps: &[&Step]) -> Option<Draft> {
    let mut draft: Option<Draft> = None;
    for step in steps {
        let Step::Legacy(_, name, arguments) = step else {
            continue;
        };
        if draft.is_none() && name.is_empty() && text_of(arguments).is_empty() {
            continue;
        }
        let draft = draft.get_or_insert_with(|| Draft {
            index: Value::Null,
            id: String::new(),
            names: vec![],
            arguments: String::new(),
        });
        if !name.is_empty() {
            draft.names.push(name.clone());
        }
        draft.arguments += &text_of(arguments);
    }
    draft
}

/// The call, if it may pass.
fn judged(draft: &Draft, cut_off: bool) -> Option<(String, String)> {
    let first = draft.names.first()?;
    let mut name = first.clone();
    let mut pieces = draft.names.clone();
    if pieces.len() > 1 {
        // A name that is repeated in full before any other came is one piece.
        let repeats = pieces.iter().take_while(|piece| *piece == first).count();
        pieces.drain(1..repeats);
    }
    for piece in &pieces[1..] {
        if ALLOWED.contains(&name.as_str()) {
            return None;
        }
        name += piece;
    }
    let mut arguments = draft.arguments.clone();
    if arguments.starts_with("{}{") {
        arguments = arguments[2..].to_owned();
    }
    if arguments.is_empty() {
        if cut_off {
            return None;
        }
        arguments = "{}".to_owned();
    }
    let object: Result<serde_json::Map<String, Value>, _> = serde_json::from_str(&arguments);
    (object.is_ok() && ALLOWED.contains(&name.as_str())).then_some((name, arguments))
}

fn expect(steps: &[&Step], each: bool) -> Expected {
    let mut expected = Expected::default();
    let mut proposed = 0;
    let (mut late, mut sent) = (false, false);
    let mut kept: Option<String> = None;
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Text(_, text) | Step::Piece(_, _, Some(text)) => expected.text += text,
            _ => {}
        }
        let so_far = &steps[..=at];
        let count = drafts(so_far).len() + usize::from(legacy(so_far).is_some());
        late |= sent && count > proposed;
        proposed = count;
        if let Step::Finish(_, reason) = step
            && !reason.is_empty()
        {
            let waits = proposed > 0
                || kept.is_some()
                || reason.ends_with("_call")
                || reason == "tool_calls";
            if waits {
                kept = Some(reason.clone());
            } else {
                sent = true;
                expected.finish = Some(reason.clone());
            }
        }
    }
    let cut_off = kept.as_deref() == Some("length");
    let calls = drafts(steps);
    let old = legacy(steps);
    let outcomes: Vec<Option<(String, String)>> = calls
        .iter()
        .chain(&old)
        .map(|draft| judged(draft, cut_off).filter(|_| !late))
        .collect();
    expected.blocked = outcomes.iter().any(Option::is_none);
    let passed: Vec<(String, String)> = outcomes.into_iter().flatten().collect();
    let deliver = !expected.blocked || each;
    if deliver && calls.is_empty() {
        expected.function_call = passed.first().cloned();
    } else if deliver {
        expected.calls = passed;
    }
    let sends = !expected.calls.is_empty() || expected.function_call.is_some();
    if proposed > 0 || kept.is_some() {
        expected.finish = Some(match kept {
            _ if expected.blocked && sends => "tool_calls".to_owned(),
            _ if expected.blocked => "stop".to_owned(),
            Some(reason) if reason == "function_call" && !calls.is_empty() => {
                "tool_calls".to_owned()
            }
            Some(reason) => reason,
            None if expected.function_call.is_some() => "function_call".to_owned(),
            None => "tool_calls".to_owned(),
        });
    }
    expected
}

fn check(script: &Script) -> Result<(), TestCaseError> {
    let delivery = Delivery {
        each: script.each,
        ..Delivery::default()
    };
    let rules = || rules_for(ALLOWED, delivery);
    let bytes = script.bytes();
    let mut cuts: Vec<usize> = script
        .cuts
        .iter()
        .map(|cut| cut.index(bytes.len() + 1))
        .collect();
    cuts.sort_unstable();
    let whole = relay_cut(rules(), &bytes, &[]);
    let cut = relay_cut(rules(), &bytes, &cuts);
    prop_assert_eq!(&whole.out, &cut.out);
    let got = whole.choices();
    let Some(wanted) = reference(script) else {
        prop_assert!(whole.tally.error.is_some());
        prop_assert!(
            got.values()
                .all(|seen| seen.calls.is_empty() && seen.function_call.is_none())
        );
        return Ok(());
    };
    prop_assert!(whole.tally.error.is_none(), "{:?}", whole.tally.error);
    prop_assert!(whole.is_done() || whole.out.is_empty());
    for (at, wanted) in &wanted {
        let seen = got.get(at).cloned().unwrap_or_default();
        let calls: Vec<(String, String)> = seen
            .calls
            .iter()
            .map(|(name, _, arguments)| (name.clone(), arguments.clone()))
            .collect();
        prop_assert_eq!(&calls, &wanted.calls);
        prop_assert_eq!(&seen.function_call, &wanted.function_call);
        prop_assert_eq!(&seen.finish, &wanted.finish);
        let notice = seen.text.strip_prefix(&wanted.text);
        prop_assert!(
            notice.is_some(),
            "{:?} does not begin with {:?}",
            seen.text,
            wanted.text
        );
        let told = notice.is_some_and(|notice| notice.contains("Blocked by Tallygate"));
        prop_assert_eq!(told, wanted.blocked);
    }
    let delivered: Vec<&str> = got
        .values()
        .flat_map(|seen| &seen.calls)
        .map(|(_, id, _)| id.as_str())
        .collect();
    for id in (0..6).map(|at| format!("id_{at}")) {
        prop_assert!(
            delivered.contains(&id.as_str()) || !whole.out.contains(&id),
            "{} leaks",
            id
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(3000)))]

    #[test]
    fn random_streams_are_judged_as_the_reference_judges_them(script in script()) {
        check(&script)?;
    }
}
