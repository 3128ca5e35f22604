//! The strict reader. Depth is bounded before it is descended, so the stack is too.

use super::{Decimal, Fault, Json, MAX_BYTES, MAX_DEPTH, MAX_VALUES};

pub(super) fn parse(text: &str) -> Result<Json, Fault> {
    if text.len() > MAX_BYTES {
        return Err(Fault::Large);
    }
    let mut reader = Reader {
        text,
        at: 0,
        values: 0,
    };
    let value = reader.value(0)?;
    reader.skip_space();
    match reader.peek() {
        None => Ok(value),
        Some(_) => Err(Fault::Trailing),
    }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    values: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// The next byte that is no white space; stays on it.
    fn next(&mut self) -> Result<u8, Fault> {
        self.skip_space();
        self.peek().ok_or(Fault::Incomplete)
    }

    fn value(&mut self, depth: usize) -> Result<Json, Fault> {
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(Fault::Large);
        }
        match self.next()? {
            b'{' | b'[' if depth >= MAX_DEPTH => Err(Fault::Deep),
            b'{' => self.object(depth + 1),
            b'[' => self.array(depth + 1),
            b'"' => self.string().map(Json::String),
            b'-' | b'0'..=b'9' => self.number(),
            b't' => self.word("true", Json::Bool(true)),
            b'f' => self.word("false", Json::Bool(false)),
            b'n' => self.word("null", Json::Null),
            _ => Err(Fault::Syntax),
        }
    }

    fn object(&mut self, depth: usize) -> Result<Json, Fault> {
        self.at += 1;
        let mut members = Vec::new();
        if self.next()? == b'}' {
            self.at += 1;
            return Ok(Json::Object(members));
        }
        loop {
            if self.next()? != b'"' {
                return Err(Fault::Syntax);
            }
            let name = self.string()?;
            if self.next()? != b':' {
                return Err(Fault::Syntax);
            }
            self.at += 1;
            members.push((name, self.value(depth)?));
            if self.ends_list(b'}')? {
                break;
            }
        }
        if has_duplicate(&members) {
            return Err(Fault::Duplicate);
        }
        Ok(Json::Object(members))
    }

    fn array(&mut self, depth: usize) -> Result<Json, Fault> {
        self.at += 1;
        let mut items = Vec::new();
        if self.next()? == b']' {
            self.at += 1;
            return Ok(Json::Array(items));
        }
        loop {
            items.push(self.value(depth)?);
            if self.ends_list(b']')? {
                return Ok(Json::Array(items));
            }
        }
    }

    /// Steps over a comma, or over the end of the list.
    fn ends_list(&mut self, close: u8) -> Result<bool, Fault> {
        let byte = self.next()?;
        self.at += 1;
        match byte {
            b',' => Ok(false),
            byte if byte == close => Ok(true),
            _ => Err(Fault::Syntax),
        }
    }

    fn word(&mut self, word: &str, value: Json) -> Result<Json, Fault> {
        let rest = self.text.get(self.at..).unwrap_or_default();
        if rest.starts_with(word) {
            self.at += word.len();
            return Ok(value);
        }
        Err(if word.starts_with(rest) {
            Fault::Incomplete
        } else {
            Fault::Syntax
        })
    }

    fn number(&mut self) -> Result<Json, Fault> {
        let start = self.at;
        while matches!(
            self.peek(),
            Some(b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9')
        ) {
            self.at += 1;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        if Decimal::parse(text).is_some() {
            return Ok(Json::Number(text.into()));
        }
        // The grammar allows the text, only the exponent is too long.
        if text.parse::<f64>().is_ok()
            && serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
        {
            return Err(Fault::Number);
        }
        Err(if self.peek().is_none() {
            Fault::Incomplete
        } else {
            Fault::Syntax
        })
    }

    fn string(&mut self) -> Result<String, Fault> {
        self.at += 1;
        let mut string = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let special = |byte: u8| byte == b'"' || byte == b'\\' || byte < b' ';
            let plain = rest.bytes().position(special).ok_or(Fault::Incomplete)?;
            // Cut at ASCII, so on a character's edge.
            string.push_str(rest.get(..plain).unwrap_or_default());
            self.at += plain + 1;
            match rest.as_bytes().get(plain) {
                Some(b'"') => return Ok(string),
                Some(b'\\') => string.push(self.escape()?),
                _ => return Err(Fault::Syntax),
            }
        }
    }

    /// What stands behind a backslash.
    fn escape(&mut self) -> Result<char, Fault> {
        let byte = self.peek().ok_or(Fault::Incomplete)?;
        self.at += 1;
        Ok(match byte {
            b'"' => '"',
            b'\\' => '\\',
            b'/' => '/',
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => return self.unicode(),
            _ => return Err(Fault::Syntax),
        })
    }

    fn unicode(&mut self) -> Result<char, Fault> {
        let first = self.hex()?;
        if let Some(char) = char::from_u32(first) {
            return Ok(char);
        }
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        if first >= 0xDC00 || !(b"\\u".starts_with(rest) || rest.starts_with(b"\\u")) {
            return Err(Fault::Surrogate);
        }
        self.at = (self.at + 2).min(self.text.len());
        let second = self.hex()?;
        if !(0xDC00..0xE000).contains(&second) {
            return Err(Fault::Surrogate);
        }
        char::from_u32(0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00))
            .ok_or(Fault::Surrogate)
    }

    fn hex(&mut self) -> Result<u32, Fault> {
        let mut unit = 0;
        for _ in 0..4 {
            let byte = self.peek().ok_or(Fault::Incomplete)?;
            let digit = char::from(byte).to_digit(16).ok_or(Fault::Syntax)?;
            unit = unit << 4 | digit;
            self.at += 1;
        }
        Ok(unit)
    }
}

fn has_duplicate(members: &[(String, Json)]) -> bool {
    let mut names: Vec<&str> = members.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names
        .windows(2)
        .any(|pair| matches!(pair, [one, other] if one == other))
}
