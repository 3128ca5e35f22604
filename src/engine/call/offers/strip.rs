//! Cuts tools out of the body: what is named goes, every other byte stays as it came.

use std::borrow::Cow;

use super::{Holder, Offers};
use crate::engine::call::cursor::{Span, skip_space, skip_space_back};

/// A piece of the body to replace, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    pub at: Span,
    pub text: Cow<'static, str>,
}

/// Where members of the request stand that make no sense once a list is gone.
pub trait Companions {
    /// The span of a member's value.
    fn value_of(&self, member: &str) -> Option<Span>;
}

/// Of an answer: nothing of it goes to a provider.
#[derive(Debug, Clone, Copy)]
pub struct NoCompanions;

impl Companions for NoCompanions {
    fn value_of(&self, _: &str) -> Option<Span> {
        None
    }
}

/// What providers refuse without the tools it speaks of.
fn companions(list: &str) -> &'static [&'static str] {
    match list {
        "tools" => &["tool_choice", "parallel_tool_calls"],
        "functions" => &["function_call"],
        _ => &[],
    }
}

impl Offers {
    /// What to change so that the tools for which `gone` is true are not offered. Tools that
    /// stand in the same entry as one of them go with it: `gone` says so then.
    pub fn strip(
        &self,
        body: &[u8],
        gone: &mut [bool],
        companions_at: &impl Companions,
    ) -> Vec<Patch> {
        let removed = self.removed(gone);
        let dead = self.dead(&removed);
        for (tool, gone) in self.tools.iter().zip(gone.iter_mut()) {
            *gone |= is(&dead, tool.list) || is_in(&removed, tool.list, tool.element);
        }
        let mut patches = Vec::new();
        let mut members = Vec::new();
        for (index, list) in self.lists.iter().enumerate() {
            let cut = removed.get(index).map(Vec::as_slice).unwrap_or_default();
            if is(&dead, index) || !cut.contains(&true) {
                continue;
            }
            if cut.contains(&false) {
                let elements = list.elements.iter().zip(cut);
                let spans = elements
                    .filter(|(_, cut)| **cut)
                    .map(|(span, _)| span.clone());
                patches.extend(cuts(body, spans.collect()).map(Patch::cut));
            } else if let Holder::Member(name) = list.holder {
                members.push(member_span(body, &list.span));
                let others = companions(name).iter();
                let spans = others.filter_map(|name| companions_at.value_of(name));
                members.extend(spans.map(|span| member_span(body, &span)));
            } else {
                let text = Cow::Borrowed("[]");
                patches.push(Patch {
                    at: list.span.clone(),
                    text,
                });
            }
        }
        patches.extend(cuts(body, members).map(Patch::cut));
        patches
    }

    /// For each list, which of its entries go: those with a tool that goes, and those that hold
    /// nothing but lists of which nothing is left.
    fn removed(&self, gone: &[bool]) -> Vec<Vec<bool>> {
        let new = |list: &super::List| vec![Inside::default(); list.elements.len()];
        let mut inside: Vec<Vec<Inside>> = self.lists.iter().map(new).collect();
        for (tool, gone) in self.tools.iter().zip(gone) {
            if let Some(at) = inside
                .get_mut(tool.list)
                .and_then(|l| l.get_mut(tool.element))
            {
                at.goes |= *gone;
                at.stays |= !gone;
            }
        }
        // A list stands behind the one that holds it, so the inner ones are known first.
        for index in (0..self.lists.len()).rev() {
            let left = |entry: &Inside| !entry.is_removed();
            let entries = inside.get(index).map(Vec::as_slice).unwrap_or_default();
            let emptied = !entries.is_empty() && !entries.iter().any(left);
            let Some(Holder::Element { list, element }) = self.lists.get(index).map(|l| l.holder)
            else {
                continue;
            };
            if let Some(at) = inside.get_mut(list).and_then(|l| l.get_mut(element)) {
                at.emptied |= emptied;
                at.stays |= !emptied;
            }
        }
        let flags = |list: Vec<Inside>| list.iter().map(Inside::is_removed).collect();
        inside.into_iter().map(flags).collect()
    }

    /// The lists that go because what holds them goes.
    fn dead(&self, removed: &[Vec<bool>]) -> Vec<bool> {
        let mut dead = Vec::with_capacity(self.lists.len());
        for list in &self.lists {
            let with_holder = match list.holder {
                Holder::Element { list, element } => {
                    is(&dead, list) || is_in(removed, list, element)
                }
                Holder::Member(_) | Holder::Item(_) => false,
            };
            dead.push(with_holder);
        }
        dead
    }
}

/// What an entry of a list holds.
#[derive(Debug, Clone, Copy, Default)]
struct Inside {
    /// A tool that goes.
    goes: bool,
    /// A tool or a list that stays.
    stays: bool,
    /// A list of which nothing is left.
    emptied: bool,
}

impl Inside {
    fn is_removed(&self) -> bool {
        self.goes || (self.emptied && !self.stays)
    }
}

fn is(flags: &[bool], index: usize) -> bool {
    flags.get(index).copied().unwrap_or_default()
}

fn is_in(lists: &[Vec<bool>], list: usize, element: usize) -> bool {
    lists.get(list).is_some_and(|flags| is(flags, element))
}

impl Patch {
    fn cut(at: Span) -> Self {
        let text = Cow::Borrowed("");
        Self { at, text }
    }
}

/// The ranges to leave out so that `spans`, elements of one array or members of one object, are
/// gone, each with one comma.
fn cuts(body: &[u8], mut spans: Vec<Span>) -> impl Iterator<Item = Span> {
    spans.sort_by_key(|span| span.start);
    let mut spans = spans.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut run = spans.next()?;
        while let Some(next) = spans.next_if(|next| behind_comma(body, run.end) == Some(next.start))
        {
            run.end = next.end;
        }
        if let Some(next) = behind_comma(body, run.end) {
            return Some(run.start..next);
        }
        // The last one takes the comma before it along, if anything stands there.
        let before = skip_space_back(body, run.start);
        let comma = before
            .checked_sub(1)
            .filter(|at| body.get(*at) == Some(&b','));
        Some(comma.unwrap_or(run.start)..run.end)
    })
}

/// Where the next one begins, if one follows.
fn behind_comma(body: &[u8], end: usize) -> Option<usize> {
    let comma = skip_space(body, end);
    (body.get(comma) == Some(&b',')).then(|| skip_space(body, comma + 1))
}

/// From a member's name to the end of its value. The names that are asked for hold no quote, in
/// whatever spelling.
fn member_span(body: &[u8], value: &Span) -> Span {
    let colon = skip_space_back(body, value.start).saturating_sub(1);
    let close = skip_space_back(body, colon).saturating_sub(1);
    let before = body.get(..close).unwrap_or_default();
    memchr::memrchr(b'"', before).unwrap_or(value.start)..value.end
}
