//! Asks the chain about whole calls and keeps what it said.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    draft::{Draft, Proposal, bare},
    item::Item,
};
use crate::engine::chain::{Block, Call, CallKind, Delivery, Judgement, guard_object, notice};

/// Says of a whole call whether it may go on.
pub type Judge = Box<dyn FnMut(&Call) -> Judgement + Send>;

/// How the calls of one answer are judged and told.
pub struct Rules {
    pub judge: Judge,
    pub delivery: Delivery,
    /// The decision's id and the policy's name, for what the client is told.
    pub decision: Arc<str>,
    pub policy: Arc<str>,
    /// No event, and no answer's withheld calls together, may be larger. Bytes.
    pub largest_event: usize,
}

/// A call and what was said of it, for the record.
#[derive(Debug, Clone)]
pub struct Judged {
    pub call: Call,
    pub judgement: Judgement,
}

pub struct Court {
    pub rules: Rules,
    pub judged: Vec<Judged>,
    /// Why calls were blocked, over the whole answer.
    pub blocks: Vec<Block>,
    messages: usize,
}

impl Court {
    pub fn new(rules: Rules) -> Self {
        Self {
            rules,
            judged: Vec::new(),
            blocks: Vec::new(),
            messages: 0,
        }
    }

    /// The call as it may go on, or why it may not.
    pub fn hear(&mut self, draft: &Draft) -> Result<Proposal, Block> {
        let mut proposal = draft.clone().close();
        let judgement = self.ask(proposal.call.clone());
        if let Some(block) = judgement.blocked {
            return Err(block);
        }
        if proposal.call.kind == CallKind::Function {
            proposal.item.set_text("arguments", &judgement.arguments);
            proposal.call.arguments = judgement.arguments;
        }
        Ok(proposal)
    }

    /// Of what the provider runs by itself only the type can be judged: it has run.
    pub fn hear_hosted(&mut self, item: &Item) -> Result<(), Block> {
        let name = bare(&item.kind);
        let call = Call {
            kind: CallKind::Item(name.as_str().into()),
            id: item.members.text("id").unwrap_or_default(),
            name: item.members.text("name").unwrap_or(name),
            namespace: item.members.text("server_label"),
            arguments: "{}".to_owned(),
            fault: None,
        };
        self.ask(call).blocked.map_or(Ok(()), Err)
    }

    fn ask(&mut self, call: Call) -> Judgement {
        let judgement = (self.rules.judge)(&call);
        self.blocks.extend(judgement.blocked.clone());
        self.judged.push(Judged {
            call,
            judgement: judgement.clone(),
        });
        judgement
    }

    /// The words in place of blocked calls, and an id for the message that says them.
    pub fn words(&mut self, blocks: &[Block]) -> (String, String) {
        self.messages += 1;
        let unique = self.rules.decision.trim_start_matches("dec_");
        let id = format!("msg_{unique}{:02x}", self.messages);
        (id, notice(blocks, &self.rules.decision))
    }

    /// The `guard` object; null while nothing was blocked.
    pub fn guard(&self) -> Value {
        guard_object(&self.blocks, &self.rules.policy, &self.rules.decision)
    }

    /// Whether an allowed call may go on, whatever became of the others.
    pub fn lets_siblings_go(&self) -> bool {
        self.rules.delivery.each || self.blocks.is_empty()
    }

    /// `true` if blocked calls are told as an error.
    pub fn refuses(&self) -> bool {
        self.rules.delivery.as_error && !self.blocks.is_empty()
    }

    /// That error.
    pub fn error(&self) -> Value {
        json!({
            "message": notice(&self.blocks, &self.rules.decision),
            "type": "permission_error",
            "param": null,
            "code": BLOCKED,
        })
    }
}

/// The code of an answer whose calls were blocked.
pub const BLOCKED: &str = "tool_call_blocked";
