//! Random answers, against what must be true of each.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Part {
    Text(String),
    Thought,
    Call {
        name: &'static str,
        arguments: String,
    },
    Shell(String),
    /// A call that is in the response object alone.
    Late(&'static str),
}

fn part() -> impl Strategy<Value = Part> {
    let name = prop_oneof![Just("read_file"), Just("delete_file")];
    prop_oneof![
        "[a-z ]{0,20}".prop_map(Part::Text),
        Just(Part::Thought),
        (name.clone(), "[a-z\"\\\\ ]{0,12}").prop_map(|(name, text)| Part::Call {
            name,
            arguments: json!({ "secret": text }).to_string(),
        }),
        "[a-z]{1,8}".prop_map(|word| Part::Shell(format!("secret-{word}"))),
        name.prop_map(Part::Late),
    ]
}

fn write(parts: &[Part]) -> Vec<u8> {
    let mut script = Script::new();
    let mut late = Vec::new();
    for (at, part) in parts.iter().enumerate() {
        let id = format!("call-{at}-");
        match part {
            Part::Text(text) => script.text(text),
            Part::Thought => script.item(json!({"type": "reasoning", "id": "rs", "summary": []})),
            Part::Call { name, arguments } => script.call(&id, name, arguments),
            Part::Shell(word) => script.item(json!({"type": "local_shell_call", "id": "ls",
                "call_id": id, "status": "completed", "action": {"type": "exec", "command": [word]}})),
            Part::Late(name) => {
                late.push(function(&id, name, "{}", "completed"));
                &mut script
            }
        };
    }
    script.output.extend(late);
    script.end("completed")
}

fn is_call(part: &Part) -> bool {
    !matches!(part, Part::Text(_) | Part::Thought)
}

fn allowed(part: &Part) -> bool {
    !matches!(
        part,
        Part::Call {
            name: "delete_file",
            ..
        } | Part::Late("delete_file")
    )
}

proptest! {
    #[test]
    fn the_client_gets_all_text_the_allowed_calls_and_nothing_of_the_others(
        parts in prop::collection::vec(part(), 0..7),
        size in 1_usize..200,
        each: bool,
    ) {
        let bytes = write(&parts);
        let delivery = Delivery { each, as_error: false };
        let seen = run(&bytes, size, rules(not_delete, delivery));
        seen.assert_consistent();
        let blocked = parts.iter().any(|part| !allowed(part));
        let goes_on = |part: &&Part| is_call(part) && allowed(part) && (each || !blocked);
        prop_assert_eq!(seen.calls().len(), parts.iter().filter(goes_on).count());
        for (at, part) in parts.iter().enumerate().filter(|(_, part)| is_call(part)) {
            let gone = seen.holds(&format!("call-{at}-"));
            prop_assert_eq!(gone, goes_on(&part));
        }
        let said: String = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(text.as_str()),
            _ => None,
        }).collect();
        let without_notices = seen.items().iter().filter(|item| item["content"][0]["text"].as_str()
            .is_some_and(|text| !text.starts_with("Blocked by Tallygate")))
            .filter_map(|item| item["content"][0]["text"].as_str()).collect::<String>();
        prop_assert_eq!(without_notices, said);
        prop_assert_eq!(seen.tally.tool_calls as usize, parts.iter().filter(|part| is_call(part)).count());
        prop_assert_eq!(seen.tally.usage.unwrap().usage.output, 10);
        let whole = run(&bytes, usize::MAX, rules(not_delete, delivery));
        prop_assert_eq!(whole.bytes, seen.bytes);
    }

    #[test]
    fn of_damaged_answers_nothing_blocked_is_seen(
        parts in prop::collection::vec(part(), 1..5),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        size in 1_usize..200,
    ) {
        let mut bytes = write(&parts);
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let mut stream = ResponsesStream::new(rules(none, Delivery::default()));
        let mut out = Vec::new();
        for piece in bytes.chunks(size) {
            stream.feed(Bytes::copy_from_slice(piece), &mut out);
        }
        stream.end(true, &mut out);
        let out = String::from_utf8_lossy(&out.concat()).into_owned();
        prop_assert!(!out.contains("secret"), "{}", out);
    }
}
