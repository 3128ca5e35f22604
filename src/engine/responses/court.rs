//! Asks the chain about whole calls and keeps what it said.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    draft::{Draft, Proposal, bare},
    item::Item,
};
use crate::engine::{
    chain::{Block, Call, CallKind, Docket, Judgement, Paused, Ruling, guard_object, notice},
    chat::{CallRules, Judge, Judged},
};

pub struct Court {
    pub rules: CallRules,
    /// Not taken out yet.
    pub judged: Vec<Judged>,
    /// All that were judged.
    pub heard: u64,
    /// Why calls were blocked, over the whole answer.
    pub blocks: Vec<Block>,
    /// Calls that wait for a person.
    pub paused: Vec<Paused>,
    docket: Docket,
    messages: usize,
}

/// How far the court had come.
pub struct Mark {
    judged: usize,
    heard: u64,
    blocks: usize,
}

impl Court {
    pub fn new(rules: CallRules) -> Self {
        Self {
            docket: rules.docket(),
            paused: Vec::new(),
            rules,
            judged: Vec::new(),
            heard: 0,
            blocks: Vec::new(),
            messages: 0,
        }
    }

    pub fn mark(&self) -> Mark {
        Mark {
            judged: self.judged.len(),
            heard: self.heard,
            blocks: self.blocks.len(),
        }
    }

    /// Forgets what was heard since `mark`, as a person has to decide first: then all is heard
    /// again. Gives the calls that wait.
    pub fn adjourn(&mut self, mark: &Mark) -> Vec<Paused> {
        let heard = self.judged.drain(mark.judged..);
        heard.for_each(|one| self.rules.judge.give_back(&one.judgement));
        self.blocks.truncate(mark.blocks);
        self.heard = mark.heard;
        self.docket = self.rules.docket();
        std::mem::take(&mut self.paused)
    }

    /// Whether nobody was asked yet.
    pub fn may_pause(&self) -> bool {
        self.rules.rulings.is_none()
    }

    /// Whether calls wait for a person, and not in vain.
    pub fn pauses(&self) -> bool {
        !self.paused.is_empty() && self.lets_siblings_go() && !self.refuses()
    }

    /// What people decided; `judge` is the one to ask from here on.
    pub fn take_rulings(&mut self, judge: Arc<dyn Judge>, rulings: Arc<[Ruling]>) {
        self.rules.judge = judge;
        self.rules.rulings = Some(rulings);
        self.docket = self.rules.docket();
    }

    /// The call as it may go on, or why it may not.
    pub fn hear(&mut self, draft: &Draft) -> Result<Proposal, Block> {
        let mut proposal = draft.clone().close();
        proposal.judged = self.judged.len();
        let judgement = self.ask(proposal.call.clone(), true);
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
        let at = self.judged.len();
        match self.ask(call, false).blocked {
            Some(block) => Err(block),
            None => {
                self.deliver(at);
                Ok(())
            }
        }
    }

    /// A call that broke off with its answer: on the record, and for nobody.
    pub fn abandon(&mut self, draft: &Draft) {
        let mut call = draft.clone().close().call;
        call.fault = Some("The answer broke off before the call could be judged.");
        let judgement = self.rules.judge.judge(&call);
        self.note(call, judgement);
    }

    /// The client gets the call.
    pub fn deliver(&mut self, judged: usize) {
        if let Some(judged) = self.judged.get_mut(judged) {
            judged.delivered = true;
        }
    }

    /// `waits`: the call can wait for a person. One that cannot is blocked instead.
    fn ask(&mut self, mut call: Call, waits: bool) -> Judgement {
        self.as_offered(&mut call);
        let mut judgement = self.rules.judge.judge(&call);
        if waits {
            let paused = self.docket.apply(&mut judgement, &call.arguments);
            if paused.is_none() {
                self.rules.judge.take(&mut judgement);
            }
            self.paused.extend(paused);
        } else {
            Docket::new(Some(&[])).apply(&mut judgement, &call.arguments);
            self.rules.judge.take(&mut judgement);
        }
        self.blocks.extend(judgement.blocked.clone());
        self.note(call, judgement.clone());
        judgement
    }

    fn note(&mut self, call: Call, judgement: Judgement) {
        self.heard += 1;
        self.judged.push(Judged {
            call,
            judgement,
            delivered: false,
        });
    }

    /// Items are named after the family of a tool, requests offer one of its versions. And a
    /// function that was searched for has its own name as its namespace.
    fn as_offered(&self, call: &mut Call) {
        let Some(offered) = self.rules.judge.offered() else {
            return;
        };
        if let CallKind::Item(kind) = &mut call.kind {
            let versions = VERSIONS.iter().filter(|(family, _)| *family == &**kind);
            let mut versions = versions.flat_map(|(_, versions)| *versions);
            if !offered.has_type(kind)
                && let Some(version) = versions.find(|version| offered.has_type(version))
            {
                *kind = (*version).into();
            }
        } else if call.namespace.as_deref() == Some(&*call.name)
            && offered
                .find(call.namespace.as_deref(), &call.name)
                .is_none()
        {
            call.namespace = None;
        }
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

/// Tools by the name that their items go by, as requests offer them.
const VERSIONS: &[(&str, &[&str])] = &[
    (
        "web_search",
        &[
            "web_search_preview",
            "web_search_2025_08_26",
            "web_search_preview_2025_03_11",
        ],
    ),
    ("computer", &["computer_use_preview"]),
    ("program", &["programmatic_tool_calling"]),
];

/// The code of an answer whose calls were blocked.
pub const BLOCKED: &str = "tool_call_blocked";
