//! Which names a subscription's destination matches: the rules of docs/destinations.md, written down once more, naively and
//! without the broker's code.

use stompica_broker::config::{Compat, Wildcards};

/// The rules of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// A trailing `*` is one segment.
    pub is_segment: bool,
    /// `compat=stompica`.
    pub is_compat: bool,
}

impl Rules {
    /// The rules of these settings.
    #[must_use]
    pub fn new(wildcards: Wildcards, compat: Compat) -> Self {
        Rules { is_segment: wildcards == Wildcards::Segment, is_compat: compat == Compat::Stompica }
    }

    /// Whether a subscription to `pattern`, which may be a plain name, gets the messages of `name`.
    #[must_use]
    pub fn matches(self, pattern: &str, name: &str) -> bool {
        if pattern == name {
            return true;
        }
        if self.is_compat {
            return pattern.split_once('*').is_some_and(|(prefix, _)| name.starts_with(prefix));
        }
        if self.kind(pattern) != self.kind(name) {
            return false;
        }
        // What has a meaning of its own has to be spelled.
        let needs_spelling =
            ["/queue/dlq/", "/queue/monitor"].into_iter().find(|start| name.starts_with(start));
        if needs_spelling.is_some_and(|start| !pattern.starts_with(start)) {
            return false;
        }
        self.follow(&segments(pattern), &segments(name))
    }

    fn kind(self, name: &str) -> &str {
        let kinds = ["/queue/", "/temp-queue/", "/temp-topic/", "#", "DIAG"];
        kinds.into_iter().find(|start| name.starts_with(start)).unwrap_or_default()
    }

    fn follow(self, pattern: &[Segment<'_>], name: &[Segment<'_>]) -> bool {
        let Some(((separator, text), behind)) = pattern.split_first() else { return name.is_empty() };
        let is_last = behind.is_empty();
        let next = name.first();
        let has_separator = next.is_some_and(|(other, _)| separator.is_none() || other == separator);
        let is_one = name.len() == 1;
        if is_last && (*text == ">" || *text == "**" || (*text == "*" && !self.is_segment)) {
            return has_separator;
        }
        if is_last && *text == "#" {
            return name.is_empty() || has_separator;
        }
        if is_last
            && let Some(start) = text.strip_suffix('*')
            && !start.is_empty()
        {
            let begins = next.is_some_and(|(other, text)| other == separator && text.starts_with(start));
            return begins && (is_one || !self.is_segment);
        }
        let is_same =
            next.is_some_and(|(other, found)| other == separator && (*text == "*" || found == text));
        is_same && self.follow(behind, &name[1..])
    }
}

/// A part of a name, and the separator before it.
type Segment<'a> = (Option<char>, &'a str);

fn segments(name: &str) -> Vec<Segment<'_>> {
    let mut all = Vec::new();
    let (mut separator, mut rest) = (None, name);
    if let Some(first) = rest.chars().next().filter(|first| "/.".contains(*first)) {
        (separator, rest) = (Some(first), &rest[1..]);
    }
    while let Some(at) = rest.find(['/', '.']) {
        all.push((separator, &rest[..at]));
        (separator, rest) = (rest[at..].chars().next(), &rest[at + 1..]);
    }
    all.push((separator, rest));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_the_documentation_says() {
        let page = include_str!("../../../docs/destinations.md");
        let mut seen = 0;
        for line in page.lines() {
            let cells: Vec<&str> = line.split('|').map(|cell| cell.trim_matches([' ', '*'])).collect();
            let names: Vec<&str> = line.split('`').collect();
            let ([_, _, _, ancestor @ ("yes" | "no"), segment, _], [_, pattern, _, name, _]) =
                (&cells[..], &names[..])
            else {
                continue;
            };
            for (is_segment, expected) in [(false, ancestor), (true, segment)] {
                let rules = Rules { is_segment, is_compat: false };
                assert_eq!(rules.matches(pattern, name), *expected == "yes", "{pattern} {name} {is_segment}");
            }
            seen += 1;
        }
        assert!(seen >= 20, "{seen} rows");
    }

    #[test]
    fn kinds_are_apart_and_dead_letters_have_to_be_spelled() {
        let rules = Rules { is_segment: false, is_compat: false };
        for (pattern, name, expected) in [
            ("/queue/*", "/queue/a", true),
            ("/queue/*", "/queue/dlq/a", false),
            ("/queue/dlq/*", "/queue/dlq/a", true),
            ("/queue/*/a", "/queue/dlq/a", false),
            ("/queue/>", "/queue/monitor", false),
            ("*", "/queue/a", false),
            ("/>", "/topic/a", true),
            ("/topic/#", "/topic", true),
            ("/topic/*/#", "/topic/a", true),
            ("/topic/*/#", "/topic", false),
        ] {
            assert_eq!(rules.matches(pattern, name), expected, "{pattern} {name}");
        }
        let compat = Rules { is_segment: false, is_compat: true };
        assert!(compat.matches("/q/a*", "/q/abc/d") && compat.matches("/q/*/z", "/q/x"));
        assert!(!compat.matches("/q/a*", "/q/b") && !compat.matches("/q", "/q/b"));
    }
}
