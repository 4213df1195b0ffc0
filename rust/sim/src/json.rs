//! A strict parser of the JSON that the broker writes: objects, lists, text, booleans and whole numbers without a sign.

use std::iter::Peekable;
use std::str::Chars;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Json {
    /// Members in their order.
    Object(Vec<(String, Json)>),
    /// Items.
    List(Vec<Json>),
    /// Text.
    Text(String),
    /// A whole number.
    Number(u64),
    /// `true` or `false`.
    Bool(bool),
}

impl Json {
    /// The value of a whole text.
    ///
    /// # Errors
    /// It is not JSON, or has values that the broker does not write.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut chars = text.chars().peekable();
        let parsed = value(&mut chars).filter(|_| chars.next().is_none());
        parsed.ok_or_else(|| format!("not the JSON of a broker: {text}"))
    }

    /// A member of an object.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Json> {
        let Json::Object(members) = self else { return None };
        members.iter().find(|(other, _)| other == name).map(|(_, value)| value)
    }

    /// A member that is a number.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.member(name)? {
            Json::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// A member that is a text.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.member(name)? {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The items of a list.
    #[must_use]
    pub fn items(&self) -> &[Json] {
        match self {
            Json::List(items) => items,
            _ => &[],
        }
    }
}

type Input<'a> = Peekable<Chars<'a>>;

fn value(chars: &mut Input<'_>) -> Option<Json> {
    match chars.peek()? {
        '{' => list(chars, '}', member).map(Json::Object),
        '[' => list(chars, ']', value).map(Json::List),
        '"' => text(chars).map(Json::Text),
        't' => word(chars, "true").map(|()| Json::Bool(true)),
        'f' => word(chars, "false").map(|()| Json::Bool(false)),
        _ => {
            let mut digits = String::new();
            while let Some(digit) = chars.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            digits.parse().ok().filter(|_| digits == "0" || !digits.starts_with('0')).map(Json::Number)
        }
    }
}

fn word(chars: &mut Input<'_>, word: &str) -> Option<()> {
    word.chars().all(|wanted| chars.next() == Some(wanted)).then_some(())
}

fn list<T>(chars: &mut Input<'_>, end: char, item: fn(&mut Input<'_>) -> Option<T>) -> Option<Vec<T>> {
    chars.next();
    let mut items = Vec::new();
    if chars.next_if_eq(&end).is_some() {
        return Some(items);
    }
    loop {
        items.push(item(chars)?);
        match chars.next()? {
            ',' => {}
            other => return (other == end).then_some(items),
        }
    }
}

fn member(chars: &mut Input<'_>) -> Option<(String, Json)> {
    let name = text(chars)?;
    word(chars, ":")?;
    Some((name, value(chars)?))
}

fn text(chars: &mut Input<'_>) -> Option<String> {
    word(chars, "\"")?;
    let mut text = String::new();
    loop {
        match chars.next()? {
            '"' => return Some(text),
            '\\' => text.push(match chars.next()? {
                'n' => '\n',
                same @ ('"' | '\\') => same,
                _ => return None,
            }),
            plain if plain < ' ' => return None,
            plain => text.push(plain),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Json;

    #[test]
    fn json_is_parsed_strictly() {
        let parsed = Json::parse(r#"[{"a":1,"b":"\"x","c":true},{}]"#).expect("JSON");
        assert_eq!(parsed.items()[0].number("a"), Some(1));
        assert_eq!(parsed.items()[0].text("b"), Some("\"x"));
        assert_eq!(parsed.items().len(), 2);
        for wrong in
            ["", "[1,]", "{\"a\":}", "01", "-1", "1.5", "[1", "\"a", "[]]", "{a:1}", "null", "\"\n\""]
        {
            assert!(Json::parse(wrong).is_err(), "{wrong}");
        }
    }
}
