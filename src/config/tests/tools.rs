//! Tool contracts and tool rules: their mistakes as printed, and what is in force.

use super::Files;
use crate::engine::policy::{Batch, Binding, OnBlock, OnOffer, Policy};

/// The good files with a contract of these lines.
fn with_contract(lines: &str) -> Files {
    let contract = format!("[tools.\"search.web\"]\n{lines}\n[[keys]]");
    Files::good().edited("tallygate.toml", "[[keys]]", &contract)
}

/// The good files with these lines in the policy's `[tools]`.
fn with_rules(lines: &str) -> Files {
    let rules = format!("[tools]\n{lines}\n[budget]");
    Files::good().edited("policies/basic.toml", "[budget]", &rules)
}

fn policy(files: &Files) -> std::sync::Arc<Policy> {
    let config = files.load().unwrap_or_else(|error| panic!("{error}"));
    match &config.keys[&[0x11; 32]].policy {
        Binding::To(policy) => policy.clone(),
        Binding::Unusable(reason) => panic!("{reason}"),
    }
}

#[test]
fn a_contract_is_read_whole() {
    let files = with_contract(
        r#"scope = "search:read"
effect = "read"
schema = { file = "schemas/search.json" }
tenant_arguments = ["/tenant_id"]
arguments = [
    { at = "/amount", min = 0.5, max = 1_000_000, deny = [0, "none", true], mode = "observe" },
    { at = "/path", path_prefixes = ["/workspace"], required = false },
    { at = "/url", hosts = ["api.example.com", "*.example.org:8443"] },
    { at = "/id", pattern = "[0-9]+", allow = ["1", "2"] },
]"#,
    );
    files.write("schemas/search.json", r#"{"type":"object"}"#);
    let config = files.load().unwrap_or_else(|error| panic!("{error}"));
    let contract = config.contracts.find("search.web").unwrap();
    assert_eq!(contract.scope.as_deref(), Some("search:read"));
    assert!(contract.schema.is_some());
    assert_eq!(contract.tenant_arguments.len(), 1);
    let [amount, path, url, id] = &contract.arguments[..] else {
        panic!("{:?}", contract.arguments)
    };
    assert!(amount.observe && amount.required && amount.must.deny.len() == 3);
    assert_eq!(amount.must.max.as_ref().unwrap().number.to_string(), "1e6");
    assert_eq!(amount.must.min.as_ref().unwrap().number.to_string(), "5e-1");
    assert!(!path.required && path.must.path_prefixes.is_some());
    assert_eq!(url.must.hosts.as_ref().unwrap().len(), 2);
    assert!(id.must.pattern.is_some() && !id.observe);
    assert!(config.contracts.find("search").is_none());
    let schema = files.0.path().join("schemas/search.json");
    assert!(
        config.sources.contains(&schema),
        "a change there is a change"
    );
}

#[test]
fn a_wrong_contract_is_refused() {
    for (lines, mistake) in [
        (
            "scop = \"a\"",
            "tallygate.toml:16:1: tools.\"search.web\".scop: unknown member; did you mean \"scope\"?",
        ),
        (
            "scope = \"a b\"",
            "tallygate.toml:16:9: tools.\"search.web\".scope: \"a b\" is no scope such as \"search:read\"",
        ),
        (
            "scope = \"type:web_search\"",
            "tallygate.toml:16:9: tools.\"search.web\".scope: \"type:web_search\" is no scope such as \"search:read\"",
        ),
        (
            "effect = \"reed\"",
            "tallygate.toml:16:10: tools.\"search.web\".effect: unknown \"reed\"; known: read, write, external_write, billing",
        ),
        (
            "approval = \"sometimes\"",
            "tallygate.toml:16:12: tools.\"search.web\".approval: unknown \"sometimes\"; known: never, always, when_tainted",
        ),
        (
            "after = []",
            "tallygate.toml:16:9: tools.\"search.web\".after: an empty list asks for nothing; remove it",
        ),
        (
            "output = \"untrustd\"",
            "tallygate.toml:16:10: tools.\"search.web\".output: unknown \"untrustd\"; known: trusted, untrusted",
        ),
        (
            "tenant_arguments = [\"tenant\"]",
            "tallygate.toml:16:21: tools.\"search.web\".tenant_arguments[0]: \"tenant\" is no place such as \"/amount\" or \"/to/0/address\"",
        ),
        (
            "tenant_arguments = []",
            "tallygate.toml:16:20: tools.\"search.web\".tenant_arguments: an empty list names nothing; remove it",
        ),
        (
            "schema = \"a.json\"",
            "tallygate.toml:16:10: tools.\"search.web\".schema: must be a table",
        ),
        (
            "schema = { file = \"none.json\" }",
            "tallygate.toml:16:19: tools.\"search.web\".schema.file: none.json cannot be read: No such file or directory (os error 2)",
        ),
        (
            "schema = { file = \"type.json\" }",
            "tallygate.toml:16:19: tools.\"search.web\".schema.file: type.json cannot be used at /properties/a/type: \"strng\" is not valid under any of the schemas listed in the 'anyOf' keyword",
        ),
        (
            "schema = { file = \"remote.json\" }",
            "tallygate.toml:16:19: tools.\"search.web\".schema.file: remote.json cannot be used: $ref \"https://schemas.example/x.json\" leads out of it; write a \"$ref\" such as \"#/$defs/name\"",
        ),
        (
            "schema = { file = \"pattern.json\" }",
            "tallygate.toml:16:19: tools.\"search.web\".schema.file: pattern.json cannot be used at /pattern: is no pattern that takes linear time (no look-around, no back-references)",
        ),
    ] {
        let files = with_contract(lines);
        files.write("type.json", r#"{"properties":{"a":{"type":"strng"}}}"#);
        files.write(
            "remote.json",
            r#"{"$ref":"https://schemas.example/x.json"}"#,
        );
        files.write("pattern.json", r#"{"pattern":"(?=a)"}"#);
        assert_eq!(files.mistakes(), [mistake], "{lines}");
    }
}

#[test]
fn a_wrong_rule_about_arguments_is_refused() {
    let at = "tallygate.toml:16:";
    for (rule, mistake) in [
        (
            "{ max = 1 }",
            "14: tools.\"search.web\".arguments[0].at: missing",
        ),
        (
            "{ at = \"/x\", maxx = 1 }",
            "27: tools.\"search.web\".arguments[0].maxx: unknown member; did you mean \"max\"?",
        ),
        (
            "{ at = \"/x\", max = true }",
            "33: tools.\"search.web\".arguments[0].max: must be a number, not true or false",
        ),
        (
            "{ at = \"/x\", max = inf }",
            "33: tools.\"search.web\".arguments[0].max: \"inf\" is no number such as 0.5",
        ),
        (
            "{ at = \"/x\", min = 2, max = \"1.99\" }",
            "33: tools.\"search.web\".arguments[0].min: is more than max",
        ),
        (
            "{ at = \"/x\", allow = [] }",
            "35: tools.\"search.web\".arguments[0].allow: an empty list would allow nothing; remove it, or deny the tool",
        ),
        (
            "{ at = \"/x\", deny = [{ a = 1 }] }",
            "35: tools.\"search.web\".arguments[0].deny[0]: must be a text, a number, true or false; not a table",
        ),
        (
            "{ at = \"/x\", pattern = \"(?!a)\" }",
            "37: tools.\"search.web\".arguments[0].pattern: look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            "{ at = \"/x\", path_prefixes = [\"/a/../b\"] }",
            "44: tools.\"search.web\".arguments[0].path_prefixes[0]: \"/a/../b\" is no plain path such as \"/workspace\", without . .. // % and \\",
        ),
        (
            "{ at = \"/x\", hosts = [\"https://a.example\"] }",
            "36: tools.\"search.web\".arguments[0].hosts[0]: \"https://a.example\" is no host such as \"api.example.com\", \"*.example.com\" or \"example.com:8443\"",
        ),
        (
            "{ at = \"/x\", max = 1, mode = \"warn\" }",
            "43: tools.\"search.web\".arguments[0].mode: unknown \"warn\"; known: block, observe",
        ),
        (
            "{ at = \"/x\", required = false }",
            "14: tools.\"search.web\".arguments[0]: asks for nothing; known: min, max, allow, deny, pattern, path_prefixes, hosts",
        ),
    ] {
        let files = with_contract(&format!("arguments = [{rule}]"));
        assert_eq!(files.mistakes(), [format!("{at}{mistake}")], "{rule}");
    }
}

#[test]
fn a_tool_needs_a_name_that_a_call_can_have() {
    let files = with_contract("").edited("tallygate.toml", "search.web", "search web");
    assert_eq!(
        files.mistakes(),
        [
            "tallygate.toml:15:1: tools.\"search web\": \"search web\" is no tool name; use up to 128 bytes without white space"
        ]
    );
}

#[test]
fn general_tools_are_warned_about() {
    let advice = "no rule can tell what it will do; offer narrow tools instead";
    for name in [
        "run_shell",
        "sql.query",
        "HTTP-get",
        "type:local_shell",
        "exec",
    ] {
        let files = with_contract("").edited("tallygate.toml", "search.web", name);
        let [warning] = &files.warnings()[..] else {
            panic!("{name}: {:?}", files.warnings())
        };
        assert!(
            warning.contains("looks like a general tool") && warning.ends_with(advice),
            "{warning}"
        );
    }
    let with_schema = |schema: &str, more: &str| {
        let files = with_contract(&format!("schema = {{ file = \"s.json\" }}\n{more}"));
        files.write("s.json", schema);
        files.warnings()
    };
    let free = r#"{"properties":{"command":{"type":"string"}}}"#;
    assert_eq!(
        with_schema(free, ""),
        [format!(
            "tallygate.toml:15:1: tools.\"search.web\": looks like a general tool (its schema has a free text \"command\"); {advice}"
        )]
    );
    let nothing: [String; 0] = [];
    assert_eq!(
        with_schema(
            free,
            "arguments = [{ at = \"/command\", allow = [\"ls\"] }]"
        ),
        nothing
    );
    assert_eq!(
        with_schema(
            r#"{"properties":{"command":{"enum":["ls"],"type":"string"}}}"#,
            ""
        ),
        nothing
    );
    assert_eq!(
        with_schema(r#"{"properties":{"city":{"type":"string"}}}"#, ""),
        nothing
    );
}

#[test]
fn the_tool_rules_of_a_policy_are_read_whole() {
    let files = with_rules(
        r#"allow = ["search.web", "crm.*", "reader:read", "type:web_search", "mcp:mcp.example"]
deny = ["delete_account", "billing"]
require_contract = true
observe = ["schema_invalid", "argument_denied"]
on_offer = "strip"
on_block = "error"
batch = "each""#,
    );
    let rules = policy(&files).tools.clone();
    assert_eq!(rules.allow.as_ref().map(Vec::len), Some(5));
    assert_eq!(rules.deny.len(), 2);
    assert!(rules.require_contract);
    assert!(rules.observes("schema_invalid") && !rules.observes("tool_not_allowlisted"));
    assert_eq!(
        (rules.on_offer, rules.on_block, rules.batch),
        (OnOffer::Strip, OnBlock::Error, Batch::Each)
    );
    let default = policy(&Files::good()).tools.clone();
    assert_eq!(
        (default.allow.is_none(), default.require_contract),
        (true, false)
    );
    assert_eq!(
        (default.on_offer, default.on_block, default.batch),
        (OnOffer::Refuse, OnBlock::Replace, Batch::All)
    );
}

#[test]
fn wrong_tool_rules_are_refused() {
    for (lines, mistake) in [
        (
            "require_approval = \"pay\"",
            "6:20: tools.require_approval: must be a list",
        ),
        (
            "alow = []",
            "6:1: tools.alow: unknown member; did you mean \"allow\"?",
        ),
        (
            "allow = [\"a*b\"]",
            "6:10: tools.allow[0]: \"a*b\" is neither a name nor a prefix; write \"search.web\", \"search.*\", \"search:read\" or \"type:web_search\"",
        ),
        (
            "on_block = \"drop\"",
            "6:12: tools.on_block: unknown \"drop\"; known: replace, error",
        ),
        (
            "observe = [\"schema\"]",
            "6:12: tools.observe[0]: unknown \"schema\"; known: unknown_tool, tool_not_allowlisted, schema_invalid, argument_denied, sequence_violation, loop_detected, needs_human_approval, hosted_tool_denied",
        ),
        (
            "observe = [\"malformed_output\"]",
            "6:12: tools.observe[0]: malformed_output always blocks: what cannot be read cannot be judged, and clients would disagree about it",
        ),
        (
            "observe = [\"cross_tenant_denied\"]",
            "6:12: tools.observe[0]: cross_tenant_denied always blocks: a call into another tenant's data is never let through",
        ),
    ] {
        let expected = format!("policies/basic.toml:{mistake}");
        assert_eq!(with_rules(lines).mistakes(), [expected], "{lines}");
    }
}

#[test]
fn a_scope_that_no_contract_has_is_warned_about() {
    let files = with_contract("scope = \"search:read\"").edited(
        "policies/basic.toml",
        "[budget]",
        "[tools]\nallow = [\"search:reed\", \"search:read\", \"type:mcp\"]\n[budget]",
    );
    assert_eq!(
        files.warnings(),
        [
            "policies/basic.toml:6:9: tools.allow: \"search:reed\" is the scope of no [tools.…] contract; did you mean \"search:read\"?"
        ]
    );
}
