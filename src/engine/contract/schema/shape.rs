//! How large a schema is once its references are followed, and that they stay in its text.

use std::collections::HashMap;

use super::compile::{SchemaFault, fault};
use crate::engine::json::Json;

/// Measures of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// The longest way down, along references; if one leads back, no way takes it twice.
    pub depth: usize,
    /// The values, with what each reference leads to in its place, and dear keywords weighed.
    pub unfolded: usize,
    /// A reference leads back to where it stands.
    pub cyclic: bool,
}

/// Of one place: depth and unfolded size.
type Extent = (usize, usize);

struct Walk<'j> {
    root: &'j Json,
    /// By address; `None` while the place is being walked.
    seen: HashMap<*const Json, Option<Extent>>,
    references: usize,
    cyclic: bool,
}

/// More references are refused: each can deepen the way down by all that stands there.
const MAX_REFERENCES: usize = 512;
/// A longer way down is refused: whoever walks a schema needs a stack for it.
const MAX_DEPTH: usize = 256;

impl Shape {
    /// # Errors
    /// A reference leads out of the text, or is of a kind that we cannot follow.
    pub fn of(schema: &Json) -> Result<Self, SchemaFault> {
        let mut walk = Walk {
            root: schema,
            seen: HashMap::new(),
            references: 0,
            cyclic: false,
        };
        let (depth, unfolded) = walk.extent(schema, 0)?;
        if unfolded > MAX_UNFOLDED {
            return Err(fault("asking it would take too long"));
        }
        let written = schema.extent();
        Ok(Self {
            depth: match walk.cyclic {
                true => written.values.min(written.depth * (walk.references + 1)),
                false => depth,
            },
            unfolded,
            cyclic: walk.cyclic,
        })
    }
}

impl<'j> Walk<'j> {
    /// `level` is how deep our own stack is.
    fn extent(&mut self, value: &'j Json, level: usize) -> Result<Extent, SchemaFault> {
        if level >= MAX_DEPTH {
            return Err(fault(TOO_DEEP));
        }
        match self.seen.get(&std::ptr::from_ref(value)) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => {
                self.cyclic = true;
                return Ok((0, 0));
            }
            None => {}
        }
        self.seen.insert(value, None);
        let (mut depth, mut unfolded) = (0, 1_usize);
        let mut add = |(below, size): Extent| {
            depth = depth.max(below);
            unfolded = unfolded.saturating_add(size);
        };
        match value {
            Json::Array(items) => {
                for item in items {
                    add(self.extent(item, level + 1)?);
                }
            }
            Json::Object(members) => {
                for (name, member) in members {
                    add(self.extent(member, level + 1)?);
                    if let Some(target) = self.reference(name, member, level)? {
                        add(self.extent(target, level + 1)?);
                    }
                }
            }
            _ => {}
        }
        for (keyword, factor) in DEAR {
            if value.member(keyword).is_some() {
                unfolded = unfolded.saturating_mul(*factor);
            }
        }
        let extent = (depth + 1, unfolded);
        if extent.0 > MAX_DEPTH {
            return Err(fault(TOO_DEEP));
        }
        self.seen.insert(value, Some(extent));
        Ok(extent)
    }

    /// Draft 4 writes `id` for `$id`; in others it is any member.
    fn is_draft_4(&self) -> bool {
        let draft = self.root.member("$schema").and_then(Json::as_str);
        draft.is_some_and(|draft| draft.contains("draft-04"))
    }

    /// What a member refers to. References that lead nowhere are for the compiler to refuse.
    fn reference(
        &mut self,
        name: &str,
        member: &Json,
        level: usize,
    ) -> Result<Option<&'j Json>, SchemaFault> {
        let Json::String(target) = member else {
            return Ok(None);
        };
        match name {
            "$ref" => {}
            "id" if level > 0 && self.is_draft_4() => {
                return Err(fault("id is supported at the top only"));
            }
            // A part with an id of its own is another document to the references in it.
            "$id" if level > 0 => return Err(fault("$id is supported at the top only")),
            "$dynamicRef" | "$recursiveRef" | "$anchor" | "$dynamicAnchor" => {
                return Err(fault(format!("{name} is not supported; write {LOCAL}")));
            }
            _ => return Ok(None),
        }
        self.references += 1;
        if self.references > MAX_REFERENCES {
            return Err(fault(format!(
                "it has more than {MAX_REFERENCES} references"
            )));
        }
        let fragment = target.strip_prefix('#');
        let pointer = fragment.filter(|pointer| pointer.is_empty() || pointer.starts_with('/'));
        let Some(pointer) = pointer else {
            let shown: String = target.chars().take(120).collect();
            return Err(fault(format!(
                "$ref {shown:?} leads out of it; write {LOCAL}"
            )));
        };
        Ok(follow(self.root, pointer))
    }
}

fn follow<'j>(root: &'j Json, pointer: &str) -> Option<&'j Json> {
    pointer.split('/').skip(1).try_fold(root, |value, step| {
        let decoded = percent_decode(step)?;
        let name = decoded.replace("~1", "/").replace("~0", "~");
        match value {
            Json::Array(items) => items.get(name.parse::<usize>().ok()?),
            _ => value.member(&name),
        }
    })
}

fn percent_decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        bytes.push(match byte {
            b'%' => {
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            plain => plain,
        });
    }
    String::from_utf8(bytes).ok()
}

/// More values, references followed, are refused: each may be asked about each argument.
const MAX_UNFOLDED: usize = 500_000;
/// Keywords that ask what stands below them more than once: by comparing elements with each
/// other, or by asking everything again, and again for each such keyword below.
const DEAR: &[(&str, usize)] = &[
    ("uniqueItems", 64),
    ("unevaluatedItems", 4),
    ("unevaluatedProperties", 4),
];
const TOO_DEEP: &str = "it nests too deep along its references";
const LOCAL: &str = "a \"$ref\" such as \"#/$defs/name\"";
