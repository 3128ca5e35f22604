//! What a judgement may know of the conversation and the run: from the authenticated request and
//! our own record, never from what a model says of itself.

use crate::engine::{
    call::{Api, History, Step},
    policy::{Contracts, Output},
};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Data from outside stands in the conversation.
    pub tainted: bool,
}

impl Facts {
    /// Facts of a whole request body. Where the conversation cannot be seen, the worst is taken
    /// for true.
    pub fn of(api: Api, body: &[u8], contracts: &Contracts) -> Self {
        if !contracts.any_untrusted() {
            return Self::default();
        }
        let tainted = match History::read(api, body) {
            Ok(history) => history.continues || history.steps.iter().any(|s| taints(s, contracts)),
            Err(_) => true,
        };
        Self { tainted }
    }
}

fn taints(step: &Step, contracts: &Contracts) -> bool {
    match step {
        Step::Result { tool: Some(tool) } => {
            let contract = contracts.find(tool);
            contract.is_some_and(|contract| contract.output == Output::Untrusted)
        }
        Step::Result { tool: None } => true,
        Step::User | Step::Call { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::policy::Contract;

    fn tainted(body: &str) -> bool {
        let web = Contract {
            output: Output::Untrusted,
            ..Contract::default()
        };
        let contracts = Contracts::new([("web".into(), web), ("db".into(), Contract::default())]);
        Facts::of(Api::Chat, body.as_bytes(), &contracts).tainted
    }

    fn conversation(name: &str, id: &str) -> String {
        format!(
            r#"{{"messages":[{{"role":"assistant","tool_calls":[{{"id":"c1","function":{{"name":"{name}"}}}}]}},
            {{"role":"tool","tool_call_id":"{id}","content":"x"}}]}}"#
        )
    }

    #[test]
    fn the_result_of_an_untrusted_tool_taints_and_so_does_one_of_nobody_knows_what() {
        assert!(tainted(&conversation("web", "c1")));
        assert!(!tainted(&conversation("db", "c1")));
        assert!(tainted(&conversation("db", "c2")));
        assert!(!tainted(
            r#"{"messages":[{"role":"user","content":"web"}]}"#
        ));
        assert!(tainted(r#"{"messages":[{"role":7}]}"#));
    }

    #[test]
    fn a_call_alone_brings_nothing_in() {
        assert!(!tainted(
            r#"{"messages":[{"role":"assistant","tool_calls":[{"id":"c1","function":{"name":"web"}}]}]}"#
        ));
    }
}
