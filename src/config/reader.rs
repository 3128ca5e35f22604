//! Reads tables member by member, and lets nothing pass unseen.
//!
//! A table knows which members were asked for; what is left when its reading ends is reported
//! as unknown. Mistakes are collected, never returned early, so that all show at once. What a
//! member means is for `values` and the sections to say.

use toml::{
    Spanned,
    de::{DeString, DeTable, DeValue},
};

use super::{
    loading::Document,
    text::{member_path, suggestion},
};

/// Somewhere in a file, to which a mistake or a warning can be pinned.
#[derive(Clone)]
pub(super) struct Place<'a> {
    document: &'a Document<'a>,
    path: String,
    /// Byte offset; `None` for the file as a whole.
    offset: Option<usize>,
}

/// A table being read.
pub(super) struct Table<'a> {
    place: Place<'a>,
    /// `None`: the table is not in the file; every member is absent.
    entries: Option<&'a DeTable<'a>>,
    asked: Vec<&'static str>,
    /// Members of a later version, whose presence is a mistake of its own.
    idle: &'static [&'static str],
}

/// A member or an element, not yet understood.
pub(super) struct Value<'a> {
    place: Place<'a>,
    value: &'a DeValue<'a>,
}

impl<'a> Place<'a> {
    pub fn whole(document: &'a Document<'a>) -> Self {
        Self {
            document,
            path: String::new(),
            offset: None,
        }
    }

    pub fn mistake(&self, message: impl Into<String>) {
        self.document
            .mistake(self.offset, &self.path, message.into());
    }

    pub fn warning(&self, message: impl Into<String>) {
        self.document
            .warning(self.offset, &self.path, message.into());
    }

    /// The file this stands in.
    pub fn document(&self) -> &'a Document<'a> {
        self.document
    }

    fn member(&self, name: &str, offset: Option<usize>) -> Self {
        Self {
            path: member_path(&self.path, name),
            offset,
            ..self.clone()
        }
    }

    fn element(&self, index: usize, offset: usize) -> Self {
        Self {
            path: format!("{}[{index}]", self.path),
            offset: Some(offset),
            ..self.clone()
        }
    }
}

impl<'a> Value<'a> {
    pub fn place(&self) -> &Place<'a> {
        &self.place
    }

    pub fn is_table(&self) -> bool {
        self.value.as_table().is_some()
    }

    /// Understands the value by `read`, or pins its complaint to the place.
    pub fn read<T>(&self, read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>) -> Option<T> {
        read(self.value)
            .map_err(|message| self.place.mistake(message))
            .ok()
    }

    /// Reads a table to its end; `otherwise` is said if it is none.
    pub fn table<T>(self, otherwise: &str, read: impl FnOnce(&mut Table<'a>) -> T) -> Option<T> {
        let Some(entries) = self.value.as_table() else {
            self.place.mistake(otherwise);
            return None;
        };
        Some(read_to_end(self.place, Some(entries), read))
    }

    fn elements(self, otherwise: &str) -> Option<Vec<Self>> {
        let Some(array) = self.value.as_array() else {
            self.place.mistake(otherwise);
            return None;
        };
        let element = |(index, value): (usize, &'a Spanned<DeValue<'a>>)| Self {
            place: self.place.element(index, value.span().start),
            value: value.get_ref(),
        };
        Some(array.iter().enumerate().map(element).collect())
    }
}

impl<'a> Table<'a> {
    pub fn place(&self) -> &Place<'a> {
        &self.place
    }

    /// Where the member stands, or where it is missed.
    pub fn place_of(&self, name: &str) -> Place<'a> {
        let offset = self.entry(name).map(|(_, value)| value.span().start);
        self.place.member(name, offset.or(self.place.offset))
    }

    pub fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// The member as it came.
    pub fn member(&mut self, name: &'static str) -> Option<Value<'a>> {
        self.asked.push(name);
        let (_, value) = self.entry(name)?;
        Some(Value {
            place: self.place_of(name),
            value: value.get_ref(),
        })
    }

    pub fn optional<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        self.member(name)?.read(read)
    }

    pub fn or<T>(
        &mut self,
        name: &'static str,
        default: T,
        read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> T {
        self.optional(name, read).unwrap_or(default)
    }

    /// `None` is a mistake that has been told.
    pub fn required<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<T> {
        let member = self.member(name);
        if member.is_none() {
            self.place_of(name).mistake("missing");
        }
        member?.read(read)
    }

    /// A list of plain values. Wrong elements are told and left out.
    pub fn list<T>(
        &mut self,
        name: &'static str,
        read: impl Fn(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let elements = self.member(name)?.elements(NO_LIST)?;
        Some(
            elements
                .into_iter()
                .filter_map(|element| element.read(&read))
                .collect(),
        )
    }

    /// A list in which something must stand, because an empty one would say the unexpected.
    pub fn filled_list<T>(
        &mut self,
        name: &'static str,
        if_empty: &str,
        read: impl Fn(&'a DeValue<'a>) -> Result<T, String>,
    ) -> Option<Vec<T>> {
        let elements = self.member(name)?.elements(NO_LIST)?;
        if elements.is_empty() {
            self.place_of(name).mistake(if_empty);
        }
        Some(
            elements
                .into_iter()
                .filter_map(|element| element.read(&read))
                .collect(),
        )
    }

    /// A table, if it is there.
    pub fn table<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Table<'a>) -> T,
    ) -> Option<T> {
        self.member(name)?.table(NO_TABLE, read)
    }

    /// A table that may be absent: then it is read as an empty one. `None` is a told mistake.
    pub fn section<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Table<'a>) -> T,
    ) -> Option<T> {
        match self.member(name) {
            Some(value) => value.table(NO_TABLE, read),
            None => Some(read_to_end(self.place_of(name), None, read)),
        }
    }

    /// `[[name]]`: each table in order. Absent: empty. `None` is a told mistake.
    pub fn tables<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&mut Table<'a>) -> T,
    ) -> Option<Vec<T>> {
        let Some(value) = self.member(name) else {
            return Some(Vec::new());
        };
        let elements = value
            .elements(&format!("must be written [[{name}]]"))?
            .into_iter();
        Some(
            elements
                .filter_map(|element| element.table(NO_TABLE, &mut read))
                .collect(),
        )
    }

    /// `[name.…]`: each table with the name the operator gave it. Absent: empty. `None` is a
    /// told mistake.
    pub fn named<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&'a str, &mut Table<'a>) -> T,
    ) -> Option<Vec<T>> {
        let all = self.each(name, |name, value| {
            value.table(NO_TABLE, |table| read(name, table))
        })?;
        Some(all.into_iter().flatten().collect())
    }

    /// The same for values of any kind.
    pub fn each<T>(
        &mut self,
        name: &'static str,
        mut read: impl FnMut(&'a str, Value<'a>) -> T,
    ) -> Option<Vec<T>> {
        let place = self.place_of(name);
        let Some(value) = self.member(name) else {
            return Some(Vec::new());
        };
        let Some(entries) = value.value.as_table() else {
            place.mistake(NO_TABLE);
            return None;
        };
        let one = |(key, value): Entry<'a>| {
            let name: &'a str = key.get_ref();
            let place = place.member(name, Some(value.span().start));
            let value = value.get_ref();
            read(name, Value { place, value })
        };
        Some(entries.iter().map(one).collect())
    }

    /// Has settings refused that would protect nothing in this version.
    pub fn refuse_idle(&mut self, names: &'static [&'static str]) {
        self.idle = names;
    }

    fn entry(&self, name: &str) -> Option<Entry<'a>> {
        self.entries?.get_key_value(name)
    }

    fn report_unread(&self) {
        for (key, _) in self.entries.into_iter().flatten() {
            let name: &str = key.get_ref();
            if self.asked.contains(&name) {
                continue;
            }
            let place = self.place.member(name, Some(key.span().start));
            if self.idle.contains(&name) {
                place.mistake("is not enforced by this version; remove it");
            } else {
                let suggestion = suggestion(name, self.asked.iter().copied());
                place.mistake(format!("unknown member{suggestion}"));
            }
        }
    }
}

type Entry<'a> = (&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>);

/// The only way to a table: whoever reads one cannot forget to look for unknown members.
pub(super) fn read_to_end<'a, T>(
    place: Place<'a>,
    entries: Option<&'a DeTable<'a>>,
    read: impl FnOnce(&mut Table<'a>) -> T,
) -> T {
    let mut table = Table {
        place,
        entries,
        asked: Vec::new(),
        idle: &[],
    };
    let result = read(&mut table);
    table.report_unread();
    result
}

const NO_TABLE: &str = "must be a table";
const NO_LIST: &str = "must be a list";
