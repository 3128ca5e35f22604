//! What a judgement may know of the conversation and the run: from the authenticated request and
//! our own record, never from what a model says of itself.

use std::sync::Arc;

use super::judge::of_arguments;
use crate::engine::{
    call::{Api, History, Step},
    contract::{Contracts, Output},
    run::{Made, Past, RunGuard},
};

#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// Data from outside stands in the conversation, or has entered the run.
    pub tainted: bool,
    /// Set where rules about order, counts and loops hold.
    pub run: Option<Arc<RunGuard>>,
}

/// What a request's own conversation shows.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    pub tainted: bool,
    pub past: Past,
    /// SHA-256 of everything up to the last user input.
    pub input: String,
}

impl Conversation {
    /// Reads a whole request body. Where the conversation cannot be seen, the worst is taken for
    /// true.
    pub fn read(api: Api, body: &[u8], contracts: &Contracts) -> Self {
        let Ok(history) = History::read(api, body) else {
            return Self {
                tainted: contracts.any_untrusted(),
                ..Self::default()
            };
        };
        let taints = |step: &Step| taints(step, contracts);
        Self {
            tainted: contracts.any_untrusted()
                && (history.continues || history.steps.iter().any(taints)),
            past: past(&history),
            input: history.input,
        }
    }
}

fn past(history: &History) -> Past {
    let mut past = Past::default();
    for step in &history.steps {
        match step {
            Step::User => {
                past.recent.clear();
                past.outputs.clear();
            }
            Step::Call { tool, arguments } => {
                past.tools.push(tool.clone());
                past.recent.push(Made {
                    tool: tool.clone(),
                    digest: of_arguments(arguments),
                });
            }
            Step::Result { output, .. } => past.outputs.push(output.clone()),
        }
    }
    past
}

fn taints(step: &Step, contracts: &Contracts) -> bool {
    match step {
        Step::Result {
            tool: Some(tool), ..
        } => {
            let contract = contracts.find(tool);
            contract.is_some_and(|contract| contract.output == Output::Untrusted)
        }
        Step::Result { tool: None, .. } => true,
        Step::User | Step::Call { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::contract::Contract;

    fn read(body: &str) -> Conversation {
        let web = Contract {
            output: Output::Untrusted,
            ..Contract::default()
        };
        let contracts = Contracts::new([("web".into(), web), ("db".into(), Contract::default())]);
        Conversation::read(Api::Chat, body.as_bytes(), &contracts)
    }

    fn conversation(name: &str, id: &str) -> String {
        format!(
            r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"c1","function":{{"name":"{name}","arguments":"{{\"b\":1.0,\"a\":2}}"}}}}]}},
            {{"role":"tool","tool_call_id":"{id}","content":"x"}}]}}"#
        )
    }

    #[test]
    fn the_result_of_an_untrusted_tool_taints_and_so_does_one_of_nobody_knows_what() {
        assert!(read(&conversation("web", "c1")).tainted);
        assert!(!read(&conversation("db", "c1")).tainted);
        assert!(read(&conversation("db", "c2")).tainted);
        assert!(!read(r#"{"messages":[{"role":"user","content":"web"}]}"#).tainted);
        assert!(read(r#"{"messages":[{"role":7}]}"#).tainted);
    }

    #[test]
    fn a_call_alone_brings_nothing_in() {
        let call = r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"web"}}]}]}"#;
        assert!(!read(call).tainted);
    }

    #[test]
    fn calls_are_known_by_what_their_arguments_mean() {
        let past = read(&conversation("db", "c1")).past;
        assert_eq!(past.tools, ["db"]);
        assert_eq!(past.recent[0].digest, of_arguments(r#"{"a":2,"b":1}"#));
        assert_eq!(past.outputs.len(), 1);
    }
}
