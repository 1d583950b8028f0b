//! Words of an instruction, and what is meant by one with variables in it.

use std::iter::Peekable;
use std::ops::Range;
use std::str::Chars;

/// Variables within variables, at most.
const DEPTH_MAX: usize = 16;

/// A word as it is written, with its place in the file, bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    pub(super) text: String,
    pub(super) at: Range<usize>,
}

/// Words between blanks that are neither quoted nor escaped.
pub(super) fn split(instruction: &[(usize, char)], escape: char) -> Vec<Word> {
    let mut words = Vec::new();
    let mut word: Option<Word> = None;
    let (mut quote, mut escaped) = (None, false);
    for (at, c) in instruction {
        if quote.is_none() && !escaped && c.is_whitespace() {
            words.extend(word.take());
            continue;
        }
        let word = word.get_or_insert_with(|| Word { text: String::new(), at: *at..*at });
        word.text.push(*c);
        word.at.end = at + c.len_utf8();
        match (escaped, quote) {
            (true, _) => escaped = false,
            // Nothing is escaped between single quotes.
            (_, quote) if *c == escape && quote != Some('\'') => escaped = true,
            (_, Some(open)) if open == *c => quote = None,
            (_, None) if matches!(c, '"' | '\'') => quote = Some(*c),
            _ => {}
        }
    }
    words.extend(word);
    words
}

/// What a word means: without quotes, with the values of variables. `None` if it uses what is not known here.
pub(super) fn expand(word: &str, escape: char, value: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let mut expansion = Expansion { rest: word.chars().peekable(), escape, value, depth: 0 };
    expansion.until(None)
}

struct Expansion<'a> {
    rest: Peekable<Chars<'a>>,
    escape: char,
    value: &'a dyn Fn(&str) -> Option<String>,
    depth: usize,
}

impl Expansion<'_> {
    /// Up to `stop`, or to the end if that is what is wanted.
    fn until(&mut self, stop: Option<char>) -> Option<String> {
        let mut out = String::new();
        loop {
            let Some(c) = self.rest.next() else { return stop.is_none().then_some(out) };
            match c {
                c if Some(c) == stop => return Some(out),
                '\'' if stop != Some('"') => loop {
                    match self.rest.next()? {
                        '\'' => break,
                        c => out.push(c),
                    }
                },
                '"' => out.push_str(&self.until(Some('"'))?),
                '$' => out.push_str(&self.variable()?),
                c if c == self.escape => match (self.rest.next(), stop) {
                    (Some(next), Some('"')) if !['"', '$', self.escape].contains(&next) => out.extend([c, next]),
                    (Some(next), _) => out.push(next),
                    (None, _) => out.push(c),
                },
                c => out.push(c),
            }
        }
    }

    fn variable(&mut self) -> Option<String> {
        if self.rest.peek() != Some(&'{') {
            let name = self.name();
            return Some(if name.is_empty() { "$".to_owned() } else { (self.value)(&name).unwrap_or_default() });
        }
        self.rest.next();
        let name = self.name();
        let value = (self.value)(&name);
        let mut next = self.rest.next()?;
        if next == '}' {
            return Some(value.unwrap_or_default());
        }
        let value = if next == ':' { value.filter(|value| !value.is_empty()) } else { value };
        if next == ':' {
            next = self.rest.next()?;
        }
        self.depth += 1;
        let other = (self.depth <= DEPTH_MAX).then(|| self.until(Some('}'))).flatten()?;
        self.depth -= 1;
        match (next, value) {
            ('-', value) => Some(value.unwrap_or(other)),
            ('+', value) => Some(value.map_or_else(String::new, |_| other)),
            ('?', value) => value,
            _ => None,
        }
    }

    fn name(&mut self) -> String {
        let mut name = String::new();
        while let Some(c) = self.rest.next_if(|c| c.is_ascii_alphanumeric() || *c == '_') {
            name.push(c);
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value(name: &str) -> Option<String> {
        match name {
            "A" => Some("a".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        }
    }

    #[test]
    fn words_are_split_outside_of_quotes() {
        let text = r#"ARG  a="b c" d\ e 'f\' g"#;
        let chars: Vec<_> = text.char_indices().collect();
        let words = split(&chars, '\\');
        let texts: Vec<_> = words.iter().map(|word| word.text.as_str()).collect();
        assert_eq!(texts, ["ARG", r#"a="b c""#, r"d\ e", r"'f\'", "g"]);
        assert!(words.iter().all(|word| text[word.at.clone()] == word.text));
    }

    #[test]
    fn variables_are_those_of_docker() {
        let cases = [
            ("$A-$NONE.${A}", "a-.a"),
            ("${NONE:-x$A}${EMPTY:-y}${EMPTY-z}", "xay"),
            ("${A:+x}${NONE:+y}${EMPTY+z}", "xz"),
            (r#"'$A'"$A"\$A"#, "$Aa$A"),
            (r#""a\b\"""#, r#"a\b""#),
            ("${A:?no}", "a"),
            ("$", "$"),
        ];
        for (word, meant) in cases {
            assert_eq!(expand(word, '\\', &value).as_deref(), Some(meant), "{word}");
        }
        for word in ["${A", "${A#x}", "${NONE:?no}", "'a", "\"a", "${A:-"] {
            assert_eq!(expand(word, '\\', &value), None, "{word}");
        }
        let deep = format!("{}x{}", "${N:-".repeat(1000), "}".repeat(1000));
        assert_eq!(expand(&deep, '\\', &value), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[$A{}:+?'\"\\\\ \n-]{0,40}") {
            let chars: Vec<_> = text.char_indices().collect();
            for word in split(&chars, '\\') {
                expand(&word.text, '\\', &value);
            }
        }
    }
}
