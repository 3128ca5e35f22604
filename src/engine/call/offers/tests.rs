use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::engine::call::{ChatRequest, Edits};

fn body(members: &str) -> String {
    format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}}],{members}}}"#)
}

fn read(members: &str) -> Result<ChatRequest, InvalidRequest> {
    ChatRequest::read(body(members).as_bytes())
}

fn names(members: &str) -> Vec<String> {
    let request = read(members).unwrap_or_else(|fault| panic!("{members}: {}", fault.message));
    let tools = request.offers.tools.iter();
    tools.map(|tool| tool.name.to_string()).collect()
}

#[track_caller]
fn refused(members: &str, word: &str) {
    let fault = match read(members) {
        Err(fault) => fault,
        Ok(request) => panic!("{members} was read as {:?}", request.offers.tools),
    };
    assert!(fault.message.contains(word), "{members}: {}", fault.message);
    assert!(fault.param.is_some(), "{members}");
}

#[test]
fn every_form_gives_the_name_that_rules_know() {
    for (members, expected) in [
        (r#""tools":null"#, vec![]),
        (r#""tools":[]"#, vec![]),
        (
            r#""functions":null,"web_search_options":null,"enable_search":false"#,
            vec![],
        ),
        (
            r#""tools":[{"type":"function","function":{"name":"f"}}]"#,
            vec!["f"],
        ),
        (
            r#""tools":[{"type":"custom","custom":{"name":"f","format":{"type":"text"}}}]"#,
            vec!["f"],
        ),
        (
            r#""tools":[{"type":"function","name":"f","parameters":{}}]"#,
            vec!["f"],
        ),
        (r#""tools":[{"type":"custom","name":"f"}]"#, vec!["f"]),
        (
            r#""functions":[{"name":"f","parameters":{}},{"name":"g"}]"#,
            vec!["f", "g"],
        ),
        (r#""tools":[{"function":{"name":"f"}}]"#, vec!["f"]),
        (r#""tools":[{"name":"f","input_schema":{}}]"#, vec!["f"]),
        (
            r#""tools":[{"type":"function","name":"f","function":{"name":"f","parameters":{}}}]"#,
            vec!["f"],
        ),
        (
            r#""tools":[{"type":null,"function":null,"name":"f"}]"#,
            vec!["f"],
        ),
        (
            r#""tools":{"type":"function","function":{"name":"f"}}"#,
            vec!["f"],
        ),
        (
            r#""tools":[{"functionDeclarations":[{"name":"f"},{"name":"g"}]}]"#,
            vec!["f", "g"],
        ),
        (
            r#""tools":{"function_declarations":[{"name":"f"}]}"#,
            vec!["f"],
        ),
        (
            r#""tools":[{"type":"namespace","name":"crm","tools":[{"type":"function","name":"f"}]}]"#,
            vec!["crm.f"],
        ),
        (
            r#""tools":[{"tools":[{"type":"custom","name":"f"}],"name":"crm","type":"namespace"}]"#,
            vec!["crm.f"],
        ),
        (
            r#""tools":[{"type":"web_search_preview"},{"type":"made_up","x":[{}]}]"#,
            vec!["type:web_search_preview", "type:made_up"],
        ),
        (
            r#""tools":[{"type":"code_interpreter","container":{"type":"auto"}}]"#,
            vec!["type:code_interpreter"],
        ),
        (
            r#""tools":[{"googleSearch":{}},{"code_execution":{}}]"#,
            vec!["type:googleSearch", "type:code_execution"],
        ),
        (
            r#""tools":[{"functionDeclarations":[{"name":"f"}],"googleSearch":{}}]"#,
            vec!["f", "type:googleSearch"],
        ),
        (
            r#""tools":[{"toolSpec":{"name":"f"}}]"#,
            vec!["type:toolSpec"],
        ),
        (
            r#""tools":[{"type":"bash_20250124","name":"bash"}]"#,
            vec!["type:bash_20250124", "bash"],
        ),
        (
            r#""tools":[{"type":"Function","function":{"name":"f"}}]"#,
            vec!["type:Function", "f"],
        ),
        (
            r#""tools":[{"type":"web_search","web_search":{"enable":true}}]"#,
            vec!["type:web_search"],
        ),
        (
            r#""tools":[{"type":"MCP","server_url":"https://mcp.example"}]"#,
            vec!["type:MCP", "mcp:mcp.example"],
        ),
        (
            r#""tools":[{"type":"x","google_search":{}}]"#,
            vec!["type:x", "type:google_search"],
        ),
        (r#""tools":[{"type":"shell"}]"#, vec!["type:shell"]),
        (
            r#""tools":[{"type":"shell","environment":{"type":"local"}}]"#,
            vec!["type:shell"],
        ),
        (
            r#""tools":[{"type":"shell","environment":{"type":"container_auto"}}]"#,
            vec!["type:shell_container"],
        ),
        (
            r#""tools":[{"type":"shell","environment":"local"}]"#,
            vec!["type:shell_container"],
        ),
        (
            r#""tools":[{"type":"mcp","server_label":"w","server_url":"https://MCP.example/x"}]"#,
            vec!["mcp:mcp.example"],
        ),
        (
            r#""tools":[{"type":"mcp","server_label":"d","connector_id":"connector_drive"}]"#,
            vec!["mcp:connector_drive"],
        ),
        (r#""web_search_options":{}"#, vec!["type:web_search"]),
        (
            r#""prompt":{"id":"pmpt_1"},"tool\u005fconfig":{}"#,
            vec!["type:prompt", "type:tool_config"],
        ),
    ] {
        assert_eq!(names(members), expected, "{members}");
    }
}

#[test]
fn escapes_hide_no_name() {
    let members = r#""\u0074ools":[{"ty\u0070e":"f\u0075nction","f\u0075nction":{"n\u0061me":"\u0064elete"}}]"#;
    assert_eq!(names(members), ["delete"]);
}

#[test]
fn tools_that_messages_carry_are_offered_too() {
    let request = |message: &str| {
        let body =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x"}},{message}]}}"#);
        ChatRequest::read(body.as_bytes())
    };
    for message in [
        r#"{"role":"system","tools":[{"type":"function","function":{"name":"f"}}]}"#,
        r#"{"type":"additional_tools","role":"developer","tools":[{"type":"function","name":"f"}]}"#,
        r#"{"to\u006fls":[{"type":"function","name":"f"}],"type":"tool_search_output"}"#,
        r#"{"role":"system","functions":[{"name":"f"}]}"#,
    ] {
        let request = request(message).unwrap();
        assert_eq!(&*request.offers.tools[0].name, "f", "{message}");
        assert_eq!(
            request.offers.param_of(&request.offers.tools[0]),
            "messages"
        );
    }
    assert!(
        request(r#"{"role":"system","tools":null}"#)
            .unwrap()
            .offers
            .is_empty()
    );
    let listing = r#"{"type":"mcp_list_tools","tools":[{"name":"f"}]}"#;
    assert_eq!(request(listing).unwrap().offers.tools.len(), 1);
    let items = |text: &str| {
        let mut offers = Offers::default();
        let read = offers.items(text.as_bytes(), "input", 0..text.len());
        read.map(|()| offers.tools.len())
    };
    assert_eq!(items(&format!("[{listing}]")), Ok(0));
    let two_types = listing.replace(r#","tools""#, r#","type":"additional_tools","tools""#);
    assert!(items(&format!("[{two_types}]")).is_err());
    for member in ["Tools", "TYPE"] {
        assert!(
            items(&format!("[{{\"{member}\":[]}}]")).is_err(),
            "{member}"
        );
    }
    for message in [
        r#"{"role":"system","tools":"f"}"#,
        r#"{"role":"system","tools":[],"tools":[{"type":"function","name":"f"}]}"#,
        r#"{"role":"system","tools":[{"type":"function"}]}"#,
    ] {
        let fault = request(message).unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("messages"), "{message}");
    }
}

#[test]
fn what_reads_in_two_ways_is_refused() {
    for (members, word) in [
        (
            r#""tools":[{"type":"function","type":"web_search","function":{"name":"f"}}]"#,
            "\"type\" twice",
        ),
        (
            r#""tools":[{"type":"function","function":{"name":"f","name":"g"}}]"#,
            "\"name\" twice",
        ),
        (
            r#""tools":[{"type":"function","function":{"name":"f","n\u0061me":"g"}}]"#,
            "\"name\" twice",
        ),
        (
            r#""tools":[{"type":"function","function":{"name":"f"},"function":{"name":"g"}}]"#,
            "\"function\" twice",
        ),
        (
            r#""tools":[{"type":"function","function":{"name":"f","parameters":{},"parameters":{}}}]"#,
            "\"parameters\" twice",
        ),
        (
            r#""tools":[{"type":"function","function":{"name":"f","parameters":{},"input_schema":{}}}]"#,
            "two schemas",
        ),
        (
            r#""tools":[{"type":"function","name":"f","function":{"name":"g"}}]"#,
            "inside and beside",
        ),
        (
            r#""tools":[{"type":"function","parameters":{},"function":{"name":"g"}}]"#,
            "inside and beside",
        ),
        (
            r#""tools":[{"type":"function","function":{"name":"f"},"custom":{"name":"g"}}]"#,
            "more than one kind",
        ),
        (
            r#""tools":[{"type":"custom","function":{"name":"f"}}]"#,
            "more than one kind",
        ),
        (
            r#""tools":[{"type":"function","name":"f","server_url":"https://mcp.example"}]"#,
            "more than one kind",
        ),
        (
            r#""tools":[{"type":"function","name":"f","googleSearch":{}}]"#,
            "more than one kind",
        ),
        (
            r#""tools":[{"name":"f","functionDeclarations":[{"name":"g"}]}]"#,
            "more than one kind",
        ),
        (
            r#""tools":[{"type":"namespace","name":"n","tools":[],"function":{"name":"f"}}]"#,
            "more than one kind",
        ),
        (
            r#""tools":[{"type":"mcp","server_url":"https://mcp.example","name":"f","tools":[{"name":"g"}]}]"#,
            "more than one kind",
        ),
        (
            r#""tools":[{"type":"mcp","server_url":"https://mcp.example","server_url":"https://evil.example"}]"#,
            "twice",
        ),
        (
            r#""tools":[{"type":"mcp","server_url":"https://mcp.example","connector_id":"c"}]"#,
            "more than one way",
        ),
        (
            r#""tools":[{"type":"shell","environment":{"type":"local","type":"container_auto"}}]"#,
            "twice",
        ),
        (
            r#""tools":[{"type":"function","name":"f"}],"tools":[]"#,
            "\"tools\" twice",
        ),
        (
            r#""tools":[{"type":"function","name":"f"},{"type":"custom","name":"f"}]"#,
            "offered twice",
        ),
        (
            r#""tools":[{"type":"function","name":"f"}],"functions":[{"name":"f"}]"#,
            "offered twice",
        ),
        (
            r#""tools":[{"type":"function","name":"n.f"},{"type":"namespace","name":"n","tools":[{"name":"f"}]}]"#,
            "offered twice",
        ),
        (
            r#""tools":[{"type":"mcp","server_label":"a","server_url":"https://a.example"},{"type":"mcp","server_label":"a","server_url":"https://b.example"}]"#,
            "server_label",
        ),
    ] {
        refused(members, word);
    }
}

#[test]
fn what_is_no_tool_is_refused() {
    for (members, word) in [
        (r#""tools":"auto""#, "list of tools"),
        (r#""tools":5"#, "list of tools"),
        (r#""tools":true"#, "list of tools"),
        (r#""tools":["f"]"#, "no object"),
        (r#""tools":[[{"type":"function","name":"f"}]]"#, "no object"),
        (r#""tools":[null]"#, "no object"),
        (r#""tools":[{}]"#, "neither a type nor a name"),
        (r#""tools":{}"#, "neither a type nor a name"),
        (r#""tools":[{"type":"function"}]"#, "no name"),
        (r#""tools":[{"type":"function","function":{}}]"#, "no name"),
        (
            r#""tools":[{"type":"function","function":"f"}]"#,
            "no object",
        ),
        (
            r#""tools":[{"type":"function","function":{"name":5}}]"#,
            "no string",
        ),
        (
            r#""tools":[{"type":"function","function":{"name":""}}]"#,
            "empty",
        ),
        (
            r#""tools":[{"type":"function","function":{"name":"\ud800"}}]"#,
            "no valid text",
        ),
        (
            r#""tools":[{"type":"function","name":"type:web_search"}]"#,
            "stands for no tool",
        ),
        (
            r#""tools":[{"type":"namespace","name":"mcp:x","tools":[{"name":"f"}]}]"#,
            "stands for no tool",
        ),
        (r#""tools":[{"type":["function"],"name":"f"}]"#, "no string"),
        (r#""tools":[{"type":"","name":"f"}]"#, "empty"),
        (
            r#""tools":[{"type":"namespace","tools":[{"name":"f"}]}]"#,
            "without a name",
        ),
        (r#""tools":[{"parameters":{},"x":1}]"#, "no type"),
        (
            r#""tools":[{"type":"mcp","server_label":"w"}]"#,
            "no server",
        ),
        (
            r#""tools":[{"type":"mcp","server_url":"https://mcp.example\\@evil.example"}]"#,
            "server_url",
        ),
        (
            r#""tools":[{"type":"mcp","server_url":"https://a.example","headers":{"hoSt":"b.example"}}]"#,
            "another host",
        ),
        (
            r#""tools":[{"type":"mcp","connector_id":"a.b"}]"#,
            "connector",
        ),
        (
            r#""tools":[{"type":"mcp","server_url":"https://a.example","allowed_tools":{"read_only":true}}]"#,
            "allowed_tools",
        ),
        (
            r#""tools":[{"type":"mcp","server_url":"https://a.example","allowed_tools":"f"}]"#,
            "allowed_tools",
        ),
        (
            r#""tools":[{"tools":[{"tools":[{"tools":[{"name":"f"}]}]}]}]"#,
            "within lists",
        ),
    ] {
        refused(members, word);
    }
    let many = format!(
        r#""tools":[{{"type":"x",{}}}]"#,
        (0..70)
            .map(|n| format!("\"a{n}\":1"))
            .collect::<Vec<_>>()
            .join(",")
    );
    refused(&many, "very many members");
    let repeated = |entry: &str| vec![entry; MAX_TOOLS + 1].join(",");
    refused(
        &format!(r#""tools":[{}]"#, repeated(r#"{"type":"x"}"#)),
        "more than",
    );
    let held = repeated("\"a\"");
    let server =
        format!(r#"{{"type":"mcp","server_url":"https://a.example","allowed_tools":[{held}]}}"#);
    refused(&format!(r#""tools":[{server}]"#), "more than");
    let namespace = r#"{"type":"namespace","name":"n","tools":[]}"#;
    refused(
        &format!(r#""tools":[{}]"#, repeated(namespace)),
        "very many lists",
    );
    let named = repeated(r#"{"name":"f"}"#);
    let choice = format!(r#"{{"type":"allowed_tools","mode":"auto","tools":[{named}]}}"#);
    refused(
        &format!(r#""tools":[{{"name":"f"}}],"tool_choice":{choice}"#),
        "very many",
    );
}

#[test]
fn what_a_reader_who_ignores_case_sees_is_refused() {
    for (members, word) in [
        (r#""Tools":[{"type":"web_search"}]"#, "\"tools\""),
        (r#""tool\u017f":[{"type":"web_search"}]"#, "\"tools\""),
        (r#""Web_Search_Options":{}"#, "\"web_search_options\""),
        (r#""toolconfig":{}"#, "\"toolConfig\""),
        (r#""Model":"m-other""#, "\"model\""),
        (r#""MAX_TO\u212aENS":1000000"#, "\"max_tokens\""),
        (
            r#""tools":[{"type":"function","function":{"name":"f","Name":"g"}}]"#,
            "\"name\"",
        ),
        (
            r#""tools":[{"type":"function","name":"f","TYPE":"web_search"}]"#,
            "\"type\"",
        ),
        (
            r#""tools":[{"name":"f","functiondeclarations":[{"name":"g"}]}]"#,
            "\"functionDeclarations\"",
        ),
    ] {
        refused(members, word);
    }
    for message in [r#""Content":"y""#, r#""TOOLS":[{"name":"f"}]"#] {
        let body =
            format!(r#"{{"model":"m","messages":[{{"role":"user","content":"x",{message}}}]}}"#);
        let fault = ChatRequest::read(body.as_bytes()).unwrap_err();
        assert_eq!(fault.param.as_deref(), Some("messages"), "{message}");
    }
    // Members that nobody here acts on may be spelled as they like.
    assert!(read(r#""Temperature":1,"tool_s":[],"x":{"Tools":[]}"#).is_ok());
}

#[test]
fn a_server_that_does_not_always_ask_is_known() {
    for (value, always) in [
        ("null", true),
        (r#""always""#, true),
        (r#""never""#, false),
        (r#""Always""#, false),
        (r#"{"never":{"tool_names":["a"]}}"#, false),
        (r#"{"always":{"tool_names":["a"]}}"#, false),
        ("false", false),
    ] {
        let members = format!(
            r#""tools":[{{"type":"mcp","server_url":"https://a.example","require_approval":{value}}}]"#
        );
        let request = read(&members).unwrap();
        assert_eq!(
            request.offers.servers[0].asks == Asks::Always,
            always,
            "{value}"
        );
    }
}

#[test]
fn a_namespace_is_told_apart_from_the_name() {
    let request = read(r#""tools":[{"type":"namespace","name":"a.b","tools":[{"name":"c","parameters":{"x":1}}]}]"#).unwrap();
    let tool = &request.offers.tools[0];
    assert_eq!((tool.namespace(), tool.bare()), (Some("a.b"), "c"));
    let ToolKind::Function {
        schema: Some(schema),
    } = tool.kind.clone()
    else {
        panic!("{tool:?}")
    };
    let body = body(
        r#""tools":[{"type":"namespace","name":"a.b","tools":[{"name":"c","parameters":{"x":1}}]}]"#,
    );
    assert_eq!(&body[schema], r#"{"x":1}"#);
}

const F_AND_HOSTED: &str = r#""tools":[{"type":"function","function":{"name":"f"}},
    {"type":"web_search_preview_2025_03_11"},{"type":"namespace","name":"n","tools":[{"name":"g"}]},
    {"type":"mcp","server_label":"w","server_url":"https://mcp.example"}]"#;

#[test]
fn a_choice_says_whether_a_call_is_forced() {
    for (choice, forces) in [
        (r#"null"#, false),
        (r#""none""#, false),
        (r#""auto""#, false),
        (r#""required""#, true),
        (r#""any""#, true),
        (r#""f""#, true),
        (r#"{"type":"auto"}"#, false),
        (r#"{"type":"any"}"#, true),
        (r#"{"type":"function","function":{"name":"f"}}"#, true),
        (r#"{"type":"function","name":"f"}"#, true),
        (r#"{"name":"f"}"#, true),
        (r#"{"type":"tool","name":"f"}"#, true),
        (r#"{"type":"function","name":"g","namespace":"n"}"#, true),
        (r#"{"type":"function","name":"g"}"#, true),
        (r#"{"type":"web_search_preview"}"#, true),
        (r#"{"type":"mcp","server_label":"w","name":"x"}"#, true),
        (
            r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"f"}]}"#,
            false,
        ),
        (
            r#"{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"f"}}]}}"#,
            true,
        ),
    ] {
        let request = read(&format!(r#"{F_AND_HOSTED},"tool_choice":{choice}"#)).unwrap();
        assert_eq!(request.forces_structure(), forces, "{choice}");
    }
    let legacy = r#""functions":[{"name":"f"}],"function_call":{"name":"f"}"#;
    assert!(read(legacy).unwrap().forces_structure());
}

#[test]
fn a_choice_of_what_is_not_offered_is_refused() {
    for choice in [
        r#""delete""#,
        r#"{"type":"function","function":{"name":"delete"}}"#,
        r#"{"type":"custom","custom":{"name":"delete"}}"#,
        r#"{"type":"function","name":"f","namespace":"other"}"#,
        r#"{"type":"code_interpreter"}"#,
        r#"{"type":"mcp","server_label":"other"}"#,
        r#"{"type":"allowed_tools","mode":"auto","tools":[{"type":"function","name":"delete"}]}"#,
    ] {
        refused(
            &format!(r#"{F_AND_HOSTED},"tool_choice":{choice}"#),
            "does not offer",
        );
    }
    refused(
        r#""functions":[{"name":"f"}],"function_call":{"name":"g"}"#,
        "does not offer",
    );
    for choice in [
        "5",
        "[]",
        "{}",
        r#"{"type":"function"}"#,
        r#"{"type":"function","name":"f","name":"delete"}"#,
        r#"{"type":"function","name":"f","function":{"name":"delete"}}"#,
        r#"{"type":"function","function":{"name":"f","name":"delete"}}"#,
        r#"{"type":"allowed_tools","mode":"sometimes","tools":[]}"#,
        r#"{"type":"allowed_tools","mode":"auto","tools":[{"name":"f"}],"allowed_tools":{"mode":"auto","tools":[]}}"#,
        r#"{"type":"function","name":"f","tools":[{"name":"f"}]}"#,
        r#"{"type":"allowed_tools","mode":"auto","tools":"f"}"#,
    ] {
        refused(
            &format!(r#"{F_AND_HOSTED},"tool_choice":{choice}"#),
            "tool_choice",
        );
    }
}

#[test]
fn a_json_answer_is_a_form_that_must_be_kept() {
    for (format, forces) in [
        ("null", false),
        (r#"{"type":"text"}"#, false),
        (r#"{"type":"json_object"}"#, true),
        (r#"{"type":"json_schema","json_schema":{}}"#, true),
        (r#"{"type":"text","type":"json_object"}"#, true),
        (r#"{}"#, true),
    ] {
        let request = read(&format!(r#""response_format":{format}"#)).unwrap();
        assert_eq!(request.forces_structure(), forces, "{format}");
    }
}

/// The body without the tools of which `gone` says so.
fn stripped(body: &str, gone: &mut [bool]) -> String {
    let request = ChatRequest::read(body.as_bytes()).unwrap();
    let patches = request.offers.strip(body.as_bytes(), gone, &request);
    let edits = Edits {
        tools: &patches,
        ..Edits::default()
    };
    let sent = request.rewrite(&bytes::Bytes::from(body.to_owned()), &edits);
    String::from_utf8(sent.to_vec()).unwrap()
}

#[test]
fn a_stripped_tool_takes_its_comma_along_and_nothing_else() {
    let body = |tools: &str| {
        format!(
            "{{ \"tools\" : [ {tools} ] ,\n\t\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\
             \"content\":\"x\"}}],\"temperature\":1.0e0 }}"
        )
    };
    let [a, b, c] = ["a", "b", "c"].map(|name| format!(r#"{{ "name":"{name}" , "strict":true}}"#));
    let all = body(&format!("{a}, {b},\n{c}"));
    for (gone, left) in [
        ([true, false, false], format!("{b},\n{c}")),
        ([false, true, false], format!("{a}, {c}")),
        ([false, false, true], format!("{a}, {b}")),
        ([true, true, false], c.clone()),
        ([true, false, true], b.clone()),
        ([false, true, true], a.clone()),
    ] {
        assert_eq!(stripped(&all, &mut gone.clone()), body(&left), "{gone:?}");
    }
}

#[test]
fn an_emptied_list_goes_with_what_speaks_of_it() {
    let rest = r#""model":"m","messages":[{"role":"user","content":"x"}]"#;
    let tools = r#""tools" : [{"name":"f"}]"#;
    for (before, after) in [
        (format!("{{{tools},{rest}}}"), format!("{{{rest}}}")),
        (format!("{{{rest} , {tools} }}"), format!("{{{rest}  }}")),
        (
            format!("{{{rest},{tools},\"tool_choice\":\"auto\"}}"),
            format!("{{{rest}}}"),
        ),
        (
            format!(
                "{{\"parallel_tool_calls\":true, {tools},{rest},\"tool_choice\":\"auto\",\"n\":1}}"
            ),
            format!("{{{rest},\"n\":1}}"),
        ),
        (
            format!("{{\"to\\u006fls\":[{{\"name\":\"f\"}}],{rest}}}"),
            format!("{{{rest}}}"),
        ),
        (
            format!("{{{rest},\"functions\":[{{\"name\":\"f\"}}],\"function_call\":\"auto\"}}"),
            format!("{{{rest}}}"),
        ),
        (
            format!("{{{rest},\"tools\":{{\"name\":\"f\"}}}}"),
            format!("{{{rest}}}"),
        ),
        (
            format!("{{\"web_search_options\":{{}},{rest}}}"),
            format!("{{{rest}}}"),
        ),
    ] {
        assert_eq!(stripped(&before, &mut [true]), after, "{before}");
    }
}

#[test]
fn lists_within_lists_are_cut_where_the_tool_stands() {
    let rest = r#""model":"m","messages":[{"role":"user","content":"x"}]"#;
    let case = |tools: &str, gone: &[bool]| {
        let mut gone = gone.to_vec();
        let sent = stripped(&format!("{{\"tools\":{tools},{rest}}}"), &mut gone);
        let sent: Value = serde_json::from_str(&sent).unwrap();
        (sent["tools"].clone(), gone)
    };
    let two =
        r#"[{"type":"namespace","name":"n","tools":[{"name":"f"},{"name":"g"}]},{"name":"h"}]"#;
    let namespace = json!({"type": "namespace", "name": "n", "tools": [{"name": "g"}]});
    assert_eq!(
        case(two, &[true, false, false]).0,
        json!([namespace, {"name": "h"}])
    );
    assert_eq!(case(two, &[true, true, false]).0, json!([{"name": "h"}]));
    assert_eq!(case(two, &[true, true, true]).0, Value::Null);
    // What stands in one entry with a tool that goes cannot be told apart from it.
    let gemini = r#"[{"functionDeclarations":[{"name":"f"}],"googleSearch":{}},{"name":"h"}]"#;
    assert_eq!(
        case(gemini, &[false, true, false]),
        (json!([{"name": "h"}]), vec![true, true, false])
    );
    let kept = json!([{"functionDeclarations": [], "googleSearch": {}}, {"name": "h"}]);
    assert_eq!(
        case(gemini, &[true, false, false]),
        (kept, vec![true, false, false])
    );
}

#[test]
fn a_list_that_a_message_carries_stays_as_an_empty_one() {
    let body =
        r#"{"model":"m","messages":[{"role":"system","tools":[ {"name":"f"} ],"content":"x"}]}"#;
    assert_eq!(
        stripped(body, &mut [true]),
        body.replace(r#"[ {"name":"f"} ]"#, "[]")
    );
}

/// A tool in one of the flat forms, with things inside that look like structure.
fn tool() -> impl Strategy<Value = Value> {
    let text = "[\"\\\\{}\\[\\]:, a\u{e9}]{0,8}";
    (0..4_u8, text, any::<bool>()).prop_map(|(form, text, strict)| {
        let schema = json!({"type": "object", "description": text, "enum": [1.5, null, [text]]});
        match form {
            0 => json!({"type": "function", "function": {"description": text, "parameters": schema, "strict": strict}}),
            1 => json!({"type": "custom", "custom": {"format": {"type": text}}}),
            2 => json!({"parameters": schema, "type": "function", "description": text}),
            _ => json!({"input_schema": schema}),
        }
    })
}

fn named(mut tool: Value, name: String) -> Value {
    let inner = ["function", "custom"]
        .into_iter()
        .find(|member| tool.get(member).is_some());
    match inner {
        Some(inner) => tool[inner]["name"] = name.into(),
        None => tool["name"] = name.into(),
    }
    tool
}

proptest! {
    /// Removing k of n tools leaves the rest byte for byte: the result is the text in which
    /// the same tools were never written.
    #[test]
    fn stripping_leaves_every_other_byte(
        tools in prop::collection::vec((tool(), any::<bool>()), 1..8),
        pretty in any::<bool>(), choice in any::<bool>(), first in any::<bool>(),
    ) {
        let named: Vec<(Value, bool)> = tools
            .into_iter()
            .enumerate()
            .map(|(n, (tool, gone))| (named(tool, format!("tool_{n}")), gone))
            .collect();
        let list = |keep: &dyn Fn(bool) -> bool| -> Vec<Value> {
            named.iter().filter(|(_, gone)| keep(*gone)).map(|(tool, _)| tool.clone()).collect()
        };
        let build = |tools: Vec<Value>| {
            let mut members = serde_json::Map::new();
            let offers = |members: &mut serde_json::Map<String, Value>| {
                if !tools.is_empty() {
                    members.insert("tools".into(), tools.clone().into());
                    if choice {
                        members.insert("tool_choice".into(), "auto".into());
                        members.insert("parallel_tool_calls".into(), false.into());
                    }
                }
            };
            if first { offers(&mut members); }
            members.insert("model".into(), "m".into());
            members.insert("messages".into(), json!([{"role": "user", "content": "\u{e9}\"[,"}]));
            if !first { offers(&mut members); }
            let value = Value::Object(members);
            if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() }
        };
        let (before, after) = (build(list(&|_| true)), build(list(&|gone| !gone)));
        let mut gone: Vec<bool> = named.iter().map(|(_, gone)| *gone).collect();
        let sent = stripped(&before, &mut gone);
        let (read, expected): (Value, Value) =
            (serde_json::from_str(&sent).unwrap(), serde_json::from_str(&after).unwrap());
        prop_assert_eq!(read, expected);
        // Compact text has no white space that a comma could leave behind.
        if !pretty {
            prop_assert_eq!(sent, after);
        } else {
            let is_space = |c: &char| c.is_ascii_whitespace();
            let bare = |text: &str| text.chars().filter(|c| !is_space(c)).collect::<String>();
            prop_assert_eq!(bare(&sent), bare(&after));
        }
    }

    /// Whatever stands in the members that matter, reading ends in an answer.
    #[test]
    fn no_input_breaks_the_reader(
        kind in prop_oneof![Just("function"), Just("custom"), Just("mcp"), Just("namespace"), Just("x")],
        names in prop::collection::vec(prop_oneof![
            Just("name"), Just("function"), Just("tools"), Just("type"), Just("custom"),
            Just("server_url"), Just("parameters"), Just("allowed_tools"), Just("environment"),
        ], 0..5),
        values in prop::collection::vec(prop_oneof![
            Just(json!(null)), Just(json!("f")), Just(json!([])), Just(json!({})), Just(json!(1)),
            Just(json!([{"name": "f"}])), Just(json!({"name": "f"})), Just(json!(["f"])),
        ], 5),
    ) {
        let mut entry = json!({"type": kind});
        for (name, value) in names.iter().zip(values) {
            entry[*name] = value;
        }
        let members = format!("\"tools\":[{entry}]");
        if let Ok(request) = read(&members) {
            // What was read as nothing would go upstream unjudged. A list of none is nothing.
            let lists_only = entry["type"] == "namespace" || entry["type"].is_null();
            prop_assert!(lists_only || !request.offers.tools.is_empty(), "{}", members);
        }
    }
}
