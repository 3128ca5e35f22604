//! Which run a request belongs to, and what that says of it.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};

use super::{Proxy, live::Live, rejection::Rejection};
use crate::{
    books::{AtOnce, OpenRun, Purse},
    engine::{
        budget::LimitSpec,
        call::ChatRequest,
        chain::{Conversation, Facts},
        contract::Contract,
        policy::{Key, Policy, Status},
        run::{CONVERSATION, Escalated, MissingRun, PER_KEY, Run, RunGuard},
    },
};

const RUN_ID: HeaderName = HeaderName::from_static("x-run-id");
const RUN_TAG: HeaderName = HeaderName::from_static("x-run-tag");
/// More tags tell runs apart no better.
const MOST_TAGS: usize = 8;
/// Characters of a run's name.
const LONGEST_NAME: usize = 128;

/// A request's place in its run.
pub struct InRun {
    /// `None`: it belongs to no run, and rules of order go by its own conversation alone.
    pub open: Option<Arc<OpenRun>>,
    /// The version that the run began with, if that is another than the key's now.
    pub pinned: Option<Arc<Policy>>,
    conversation: Conversation,
    /// By which runs are compared: `X-Run-Tag`.
    pub tags: Vec<Box<str>>,
}

/// Finds the run, if rules or the client want one.
///
/// # Errors
/// No name where one must be, a run that has ended, or a store that does not answer.
pub async fn find(
    proxy: &Proxy,
    live: &Live,
    (key, policy): (&Key, &Policy),
    headers: &HeaderMap,
    (call, body): (&ChatRequest, &[u8]),
) -> Result<Option<InRun>, Rejection> {
    let contracts = &live.config.contracts;
    let named = name(headers)?;
    // Only what is offered can be called.
    let offers = |rule: fn(&Contract) -> bool| {
        let mut offered = call.offers.tools.iter();
        offered.any(|tool| contracts.find(&tool.name).is_some_and(rule))
    };
    let tags = tags(headers)?;
    let needed = !tags.is_empty() || policy.bounds_runs() || offers(Contract::needs_run);
    if named.is_none() && !needed && !offers(Contract::minds_taint) {
        return Ok(None);
    }
    let conversation = Conversation::read(call.api, body, contracts);
    let id = match (named, policy.run.missing_run_id) {
        (Some(id), _) => Some(id),
        (None, _) if !needed => None,
        (None, MissingRun::Conversation) => Some(conversation_name(&conversation.input)),
        (None, MissingRun::PerKey) => Some(PER_KEY.into()),
        (None, MissingRun::Unlimited) => None,
        (None, MissingRun::Refuse) => return Err(nameless()),
    };
    let Some(id) = id else {
        return Ok(Some(InRun {
            open: None,
            pinned: None,
            conversation,
            tags,
        }));
    };
    let open = proxy.books.run((&key.name, &id), &policy.label).await?;
    let began_with = open.state_now(|run| run.policy.clone());
    let pinned = match *began_with == *policy.label {
        true => None,
        false => Some(version(live, &began_with)?),
    };
    Ok(Some(InRun {
        open: Some(open),
        pinned,
        conversation,
        tags,
    }))
}

impl InRun {
    /// The name of the run, for records.
    pub fn id(&self) -> Option<Arc<str>> {
        self.open.as_ref().map(|open| Arc::clone(&open.id))
    }

    /// The last user input, as a digest. `None`: the conversation cannot be seen.
    pub fn input(&self) -> Option<Arc<str>> {
        let input = self.conversation.input.as_str();
        (!input.is_empty()).then(|| input.into())
    }

    /// Whether data from outside stands in the request's own conversation.
    pub fn brings_taint(&self) -> bool {
        self.conversation.tainted
    }

    /// Routes that its requests pass over.
    pub fn passed_over(&self) -> u32 {
        let open = self.open.as_ref();
        open.map_or(0, |open| open.state_now(|run| run.passed_over()))
    }

    /// The number that its next admitted request has.
    pub fn step(&self) -> Option<u64> {
        let open = self.open.as_ref()?;
        Some(open.state_now(|run| run.steps + 1))
    }

    /// Counts an admitted request; gives its number.
    pub fn count(&self, proxy: &Proxy) -> Option<u64> {
        let open = self.open.as_ref()?;
        proxy.books.note_run(open);
        Some(open.state_now(Run::step))
    }

    /// All limits of the request: those of its run, and those of its key.
    pub fn purse(&self, proxy: &Proxy, policy: &Policy, purse: &Purse) -> Option<Purse> {
        let open = self.open.as_ref()?;
        let calendar = &policy.budget.calendar;
        let limits = LimitSpec::of_run(&open.key, &open.id, &policy.run, calendar);
        let name: Arc<str> = format!("run/{}/{}", open.key, open.id).into();
        let at_once = AtOnce {
            limit: policy.run.parallel(),
            observe: false,
        };
        let own = proxy.books.purse(&name, &limits, at_once);
        Some(purse.with_run(&own))
    }

    /// The run ended for this reason.
    pub fn ended(&self, proxy: &Proxy, code: &str) {
        if let Some(open) = &self.open {
            open.state_now(|run| run.ended = Some(code.to_owned()));
            proxy.books.note_run(open);
        }
    }

    /// Whether the run may go on. Gives the escalation that a new user input ends.
    ///
    /// # Errors
    /// It is past its deadline, or was stopped.
    pub fn enter(
        &self,
        proxy: &Proxy,
        policy: &Policy,
        now_ms: i64,
    ) -> Result<Option<Escalated>, Rejection> {
        let Some(open) = &self.open else {
            return Ok(None);
        };
        let entered = open.state_now(|run| {
            run.tainted |= self.conversation.tainted;
            run.enter(&policy.run, &self.conversation.input, now_ms)
        });
        proxy.books.note_run(open);
        entered.map_err(|stop| Rejection::RunStopped(Box::new(stop)))
    }

    /// What the judge of the answer may know.
    pub fn facts(&self, policy: &Policy) -> Facts {
        let state = match &self.open {
            Some(open) => Arc::clone(&open.state),
            None => Arc::default(),
        };
        let guard = RunGuard {
            rules: policy.run.clone(),
            loops: policy.loops.clone(),
            past: self.conversation.past.clone(),
            state,
        };
        let tainted = self.conversation.tainted || guard.lock().tainted;
        Facts {
            tainted,
            run: Some(Arc::new(guard)),
        }
    }
}

impl OpenRun {
    pub fn state_now<T>(&self, look: impl FnOnce(&mut Run) -> T) -> T {
        let mut run = self
            .state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        look(&mut run)
    }
}

fn version(live: &Live, label: &str) -> Result<Arc<Policy>, Rejection> {
    let found = live
        .config
        .policies
        .iter()
        .find(|policy| *policy.label == *label);
    let reason = match found {
        Some(policy) if policy.status == Status::Published => return Ok(Arc::clone(policy)),
        Some(policy) => format!(
            "this run began with {label}, which is {} now",
            policy.status.name()
        ),
        None => format!("this run began with {label}, which is not configured any more"),
    };
    Err(Rejection::PolicyUnavailable { reason })
}

fn name(headers: &HeaderMap) -> Result<Option<Arc<str>>, Rejection> {
    let Some(value) = headers.get(&RUN_ID) else {
        return Ok(None);
    };
    let name = value.to_str().ok().filter(|name| is_plain(name));
    // A conversation's own name could be taken for another run's.
    match name.filter(|name| !name.starts_with(CONVERSATION)) {
        Some(name) => Ok(Some(name.into())),
        None => Err(Rejection::InvalidRequest {
            message: format!(
                "X-Run-Id must be a name of up to {LONGEST_NAME} letters, digits and . _ : - \
                 that does not begin with \"{CONVERSATION}\"."
            ),
            param: None,
        }),
    }
}

/// `X-Run-Tag: a, b`, also over several headers.
fn tags(headers: &HeaderMap) -> Result<Vec<Box<str>>, Rejection> {
    let wrong = || Rejection::InvalidRequest {
        message: format!(
            "X-Run-Tag must be up to {MOST_TAGS} tags with commas between them, each of up to \
             {LONGEST_NAME} letters, digits and . _ : -"
        ),
        param: None,
    };
    let mut tags: Vec<Box<str>> = Vec::new();
    for value in headers.get_all(&RUN_TAG) {
        let value = value.to_str().map_err(|_| wrong())?;
        for tag in value.split(',').map(str::trim) {
            if !is_plain(tag) || tags.len() == MOST_TAGS {
                return Err(wrong());
            }
            tags.push(tag.into());
        }
    }
    Ok(tags)
}

fn is_plain(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    !name.is_empty() && name.len() <= LONGEST_NAME && name.bytes().all(plain)
}

/// Whether a path's segment can be the name of a run.
pub fn is_run_name(name: &str) -> bool {
    is_plain(name)
}

fn conversation_name(input: &str) -> Arc<str> {
    let short = input.get(..CONVERSATION_DIGITS).unwrap_or("empty");
    format!("{CONVERSATION}{short}").into()
}

/// Of 64; no two conversations of a key share so many by chance.
const CONVERSATION_DIGITS: usize = 32;

fn nameless() -> Rejection {
    Rejection::InvalidRequest {
        message: "This key's policy wants every request to name its run in the header X-Run-Id."
            .to_owned(),
        param: None,
    }
}
