//! Pieces of calls in, whole calls out. Clients join pieces in ways that disagree; here each
//! piece goes to the one call that it can only belong to, and a call whose pieces contradict
//! one another gets a fault, for which it is blocked.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{
    Judge,
    strict::{Unreadable, is_nothing},
    suspect,
};
use crate::engine::chain::{Call, CallKind};

/// More pieces of one name than this are no name.
const MOST_NAME_PIECES: usize = 64;

/// The calls of one choice, as far as they have come.
#[derive(Debug, Default)]
pub struct Assembly {
    drafts: Vec<Draft>,
    /// `function_call`, of which an answer can have one.
    legacy: Option<Draft>,
    /// The draft that the last piece went to.
    latest: usize,
}

/// A whole call, with what is sent along with it.
#[derive(Debug, Clone)]
pub struct Whole {
    pub call: Call,
    /// What its provider wants back with the call in the next turn. JSON.
    pub extra: Option<String>,
    /// It came as `function_call`.
    pub legacy: bool,
}

#[derive(Debug, Default)]
struct Draft {
    id: String,
    index: Option<Index>,
    function: Texts,
    custom: Texts,
    extra: Option<String>,
    kinds: Vec<String>,
    fault: Option<&'static str>,
}

/// A name and what it is called with, in pieces.
#[derive(Debug, Default)]
struct Texts {
    names: Vec<String>,
    arguments: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Index {
    Number(i64),
    Odd(Box<str>),
}

#[derive(Deserialize)]
struct Piece<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "type")]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function: Option<Part<'a>>,
    #[serde(borrow)]
    custom: Option<CustomPart<'a>>,
    #[serde(borrow)]
    extra_content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CustomPart<'a> {
    #[serde(borrow)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// How pieces are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Pieces of a stream, to be joined.
    Pieces,
    /// A whole body: each entry of the list is a call of its own.
    Whole,
}

impl Assembly {
    pub fn is_empty(&self) -> bool {
        self.drafts.is_empty() && self.legacy.is_none()
    }

    pub fn len(&self) -> usize {
        self.drafts.len() + usize::from(self.legacy.is_some())
    }

    /// Whether `text` holds the id, a name or the arguments of one of the calls.
    pub fn is_told_in(&self, text: &str) -> bool {
        let told = |part: &str| !part.is_empty() && text.contains(part);
        self.drafts.iter().chain(&self.legacy).any(|draft| {
            let sides = [&draft.function, &draft.custom];
            let mut texts = sides.iter().flat_map(|side| {
                let names = side.names.iter().map(String::as_str);
                names.chain([side.arguments.as_str()])
            });
            told(&draft.id) || texts.any(told)
        })
    }

    /// Takes in a `tool_calls` member.
    ///
    /// # Errors
    /// A piece holds a member twice, or one of a type that no reader expects.
    pub fn tool_calls(&mut self, raw: &RawValue, form: Form) -> Result<(), Unreadable> {
        let Ok(pieces) = serde_json::from_str::<Vec<&RawValue>>(raw.get()) else {
            self.blame("The calls are not given as a list.");
            return Ok(());
        };
        for piece in pieces {
            match piece.get().as_bytes().first() {
                Some(b'{') => {
                    let piece = serde_json::from_str(piece.get()).map_err(|_| Unreadable)?;
                    self.piece(piece, form);
                }
                _ if is_nothing(piece.get()) => {}
                _ => self.blame("A call is not given as an object."),
            }
        }
        Ok(())
    }

    /// Takes in a `function_call` member.
    ///
    /// # Errors
    /// It holds a member twice, or one of a type that no reader expects.
    pub fn function_call(&mut self, raw: &RawValue) -> Result<(), Unreadable> {
        if is_nothing(raw.get()) {
            return Ok(());
        }
        if !raw.get().starts_with('{') {
            self.blame("A call is not given as an object.");
            return Ok(());
        }
        let part: Part<'_> = serde_json::from_str(raw.get()).map_err(|_| Unreadable)?;
        let arguments = part.arguments.filter(|raw| !is_nothing(raw.get()));
        // An empty one stands beside the text in some dialects.
        let empty = part.name.as_deref().unwrap_or_default().is_empty() && arguments.is_none();
        if empty && self.legacy.is_none() {
            return Ok(());
        }
        let draft = self.legacy.get_or_insert_default();
        draft.add(part.name, part.arguments, |draft| &mut draft.function)
    }

    /// Notes something that may be a call but is none that we know: it is blocked.
    pub fn blame(&mut self, fault: &'static str) {
        self.drafts.push(Draft {
            fault: Some(fault),
            ..Draft::default()
        });
        self.latest = self.drafts.len() - 1;
    }

    /// The calls, `tool_calls` first, whole now that nothing more comes. `end` tells why no
    /// call of this choice can be whole, if so.
    pub fn into_calls(self, judge: &dyn Judge, end: Option<&'static str>) -> Vec<Whole> {
        let drafts = self.drafts.into_iter().map(|draft| (draft, false));
        let legacy = self.legacy.into_iter().map(|draft| (draft, true));
        let mut calls = Vec::new();
        for (draft, legacy) in drafts.chain(legacy) {
            let mut whole = draft.into_whole(judge, legacy);
            whole.call.fault = whole.call.fault.or(end);
            calls.push(whole);
        }
        calls
    }

    fn piece(&mut self, piece: Piece<'_>, form: Form) {
        let index = piece.index.and_then(Index::read);
        let id = piece.id.as_deref().unwrap_or_default();
        let named = piece.names_a_tool();
        let at = match form {
            Form::Whole => None,
            Form::Pieces => self.owner(index.as_ref(), id, named),
        };
        let at = at.unwrap_or_else(|| {
            self.drafts.push(Draft {
                index,
                ..Draft::default()
            });
            self.drafts.len() - 1
        });
        self.latest = at;
        if let Some(draft) = self.drafts.get_mut(at) {
            draft.take(piece);
        }
    }

    /// Which call a piece belongs to; `None`: a new one.
    fn owner(&self, index: Option<&Index>, id: &str, named: bool) -> Option<usize> {
        let last = |fits: &dyn Fn(&Draft) -> bool| self.drafts.iter().rposition(fits);
        match (index, id) {
            (Some(index), "") => last(&|draft| draft.index.as_ref() == Some(index)),
            (Some(index), id) => {
                let same = |draft: &Draft| draft.index.as_ref() == Some(index);
                last(&|draft| same(draft) && draft.id == id)
                    // The id may come late.
                    .or_else(|| last(&same).filter(|at| self.is_unnamed_id(*at)))
            }
            (None, "") if named => None,
            (None, "") => (!self.drafts.is_empty()).then_some(self.latest),
            (None, id) => last(&|draft| draft.id == id).or_else(|| {
                let open = !named && self.is_unnamed_id(self.latest);
                open.then_some(self.latest)
            }),
        }
    }

    fn is_unnamed_id(&self, at: usize) -> bool {
        self.drafts.get(at).is_some_and(|draft| draft.id.is_empty())
    }
}

impl Piece<'_> {
    fn names_a_tool(&self) -> bool {
        let function = self.function.as_ref().and_then(|part| part.name.as_deref());
        let custom = self.custom.as_ref().and_then(|part| part.name.as_deref());
        [function, custom]
            .into_iter()
            .flatten()
            .any(|name| !name.is_empty())
    }
}

impl Draft {
    fn take(&mut self, piece: Piece<'_>) {
        if let Some(id) = piece.id.filter(|id| !id.is_empty()) {
            self.id = id.into_owned();
        }
        if let Some(kind) = piece.kind.filter(|kind| !kind.is_empty())
            && !self.kinds.iter().any(|known| *known == kind)
        {
            self.kinds.push(kind.into_owned());
        }
        let extra = piece.extra_content.filter(|extra| !is_nothing(extra.get()));
        if let Some(extra) = extra {
            if suspect::look("extra_content", extra.get()).any() {
                self.fault = Some("Something that looks like another call is hidden in the call.");
            }
            self.extra = Some(extra.get().to_owned());
        }
        let unread = |_| "A part of the call cannot be read.";
        let mut taken = Ok(());
        if let Some(part) = piece.function {
            taken = self.add(part.name, part.arguments, |draft| &mut draft.function);
        }
        if let Some(part) = piece.custom {
            taken = taken.and(self.add(part.name, part.input, |draft| &mut draft.custom));
        }
        self.fault = self.fault.or(taken.map_err(unread).err());
    }

    fn add(
        &mut self,
        name: Option<Cow<'_, str>>,
        arguments: Option<&RawValue>,
        side: impl Fn(&mut Self) -> &mut Texts,
    ) -> Result<(), Unreadable> {
        if let Some(name) = name.filter(|name| !name.is_empty()) {
            side(self).name(name);
        }
        if side(self).names.len() > MOST_NAME_PIECES {
            self.fault = Some("The call's name comes in too many pieces.");
            side(self).names.clear();
        }
        if let Some(arguments) = arguments {
            side(self).argument(arguments)?;
        }
        Ok(())
    }

    fn into_whole(mut self, judge: &dyn Judge, legacy: bool) -> Whole {
        let custom = !self.custom.names.is_empty();
        let both = custom && !self.function.names.is_empty();
        let other = if custom { &self.function } else { &self.custom };
        let mixed = both || !matches!(&*other.arguments, "" | "{}");
        let odd_kind = self
            .kinds
            .iter()
            .any(|kind| kind != if custom { "custom" } else { "function" });
        let side = if custom { self.custom } else { self.function };
        let (name, split) = side.joined(judge);
        self.fault = self
            .fault
            .or(mixed.then_some("The call is a function and a custom tool at once."))
            .or(odd_kind.then_some("The call is of a type that does not fit it."))
            .or(split)
            .or(name.is_empty().then_some("The call has no name."));
        let call = Call {
            kind: if custom {
                CallKind::Custom
            } else {
                CallKind::Function
            },
            id: self.id,
            name,
            namespace: None,
            arguments: if custom {
                side.arguments
            } else {
                whole_arguments(side.arguments)
            },
            fault: self.fault,
        };
        Whole {
            call,
            extra: self.extra,
            legacy,
        }
    }
}

impl Texts {
    /// A name that is repeated in full is one name.
    fn name(&mut self, piece: Cow<'_, str>) {
        let repeated = matches!(self.names.as_slice(), [one] if *one == piece);
        if !repeated {
            self.names.push(piece.into_owned());
        }
    }

    fn argument(&mut self, raw: &RawValue) -> Result<(), Unreadable> {
        match raw.get() {
            "null" => {}
            text if text.starts_with('"') => {
                let text: Cow<'_, str> = serde_json::from_str(text).map_err(|_| Unreadable)?;
                self.arguments.push_str(&text);
            }
            // Some local servers give the object itself.
            value => self.arguments.push_str(value),
        }
        Ok(())
    }

    /// The one name. Pieces are joined only if no client that takes them one by one could have
    /// read an allowed name on the way.
    fn joined(&self, judge: &dyn Judge) -> (String, Option<&'static str>) {
        let name = self.names.concat();
        let mut prefix = String::new();
        let unfinished = self.names.len().saturating_sub(1);
        for piece in self.names.iter().take(unfinished) {
            prefix.push_str(piece);
            if judge.allows_name(&prefix) {
                let first = self.names.first().cloned().unwrap_or_default();
                return (first, Some("The call has two different names."));
            }
        }
        (name, None)
    }
}

impl Index {
    /// An index of an odd type tells calls apart all the same.
    fn read(raw: &RawValue) -> Option<Self> {
        let text = raw.get().trim_matches('"');
        if matches!(text, "null" | "") {
            return None;
        }
        let number = text.strip_suffix(".0").unwrap_or(text).parse();
        Some(number.map_or_else(|_| Self::Odd(text.into()), Self::Number))
    }
}

/// One dialect begins with `{}` and then sends the arguments.
fn whole_arguments(arguments: String) -> String {
    match arguments.strip_prefix("{}") {
        Some(rest) if rest.trim_start().starts_with('{') => rest.to_owned(),
        _ => arguments,
    }
}
