//! How the calls of one answer are judged and told, and what came of each.

use std::{fmt::Debug, sync::Arc};

use crate::engine::chain::{
    Call, CallGuard, CallKind, Delivery, Docket, Judgement, Offered, Ruling,
};

/// Whoever decides on whole calls: the chain, or in tests rules as small as the test.
pub trait Judge: Debug + Send + Sync {
    fn judge(&self, call: &Call) -> Judgement;

    /// Counts a call that may pass in its run; blocks it if the run has no room.
    fn take(&self, _judgement: &mut Judgement) {}

    /// The client did not get a call that was taken.
    fn give_back(&self, _judgement: &Judgement) {}

    /// What the request offers, if that is known.
    fn offered(&self) -> Option<&Offered> {
        None
    }

    /// Whether some call of this name could pass.
    fn allows_name(&self, name: &str) -> bool {
        let probe = Call {
            kind: CallKind::Function,
            id: String::new(),
            name: name.to_owned(),
            namespace: None,
            arguments: "{}".to_owned(),
            fault: None,
        };
        let blocked = self.judge(&probe).blocked;
        blocked.is_none_or(|block| !matches!(block.code, "unknown_tool" | "tool_not_allowlisted"))
    }
}

impl Judge for CallGuard {
    fn judge(&self, call: &Call) -> Judgement {
        Self::judge(self, call)
    }

    fn take(&self, judgement: &mut Judgement) {
        Self::take(self, judgement);
    }

    fn give_back(&self, judgement: &Judgement) {
        Self::give_back(self, judgement);
    }

    fn offered(&self) -> Option<&Offered> {
        Some(&self.offered)
    }
}

/// What has to be known to judge the calls of one answer.
#[derive(Debug, Clone)]
pub struct CallRules {
    pub judge: Arc<dyn Judge>,
    pub delivery: Delivery,
    /// `id@version`.
    pub policy: Arc<str>,
    /// The decision's id, which the notice names and from which missing call ids are made:
    /// no other answer has it.
    pub decision: String,
    /// What people decided about paused calls. `None`: nobody was asked yet, and such calls wait.
    pub rulings: Option<Arc<[Ruling]>>,
}

impl CallRules {
    pub fn docket(&self) -> Docket {
        Docket::new(self.rulings.as_deref())
    }
}

/// A call, what the chain said, and whether the client got it.
#[derive(Debug, Clone)]
pub struct Judged {
    pub call: Call,
    pub judgement: Judgement,
    /// A call that passed is withheld too when a sibling is blocked.
    pub delivered: bool,
}
