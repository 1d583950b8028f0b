//! The instructions of a Dockerfile: lines that are continued, comments, parser directives, here-documents.

use super::words::split;

/// One instruction, each character with its place in the file, bytes.
pub(super) type Instruction = Vec<(usize, char)>;

/// All instructions, and the character that escapes.
pub(super) fn instructions(text: &str) -> (Vec<Instruction>, char) {
    let escape = escape(text);
    let mut all = Vec::new();
    let mut lines = lines(text);
    while let Some((at, line)) = lines.next() {
        if is_blank_or_comment(line) {
            continue;
        }
        let mut instruction = Instruction::new();
        let (mut at, mut line) = (at, line);
        loop {
            let cut = continued(line, escape);
            instruction.extend(cut.unwrap_or(line).char_indices().map(|(i, c)| (at + i, c)));
            // Blank lines and comments within an instruction are no part of it.
            let next = cut.and_then(|_| lines.find(|(_, next)| !is_blank_or_comment(next)));
            let Some(next) = next else { break };
            (at, line) = next;
        }
        for end in here_documents(&instruction, escape) {
            // Nothing in it is an instruction.
            lines.find(|(_, line)| end.is(line));
        }
        all.push(instruction);
    }
    (all, escape)
}

/// Lines without their ends, each with its place.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 0;
    let bom = '\u{feff}';
    text.split_inclusive('\n').map(move |line| {
        let (start, whole) = (at, line.len());
        at += whole;
        let line = line.strip_suffix('\n').unwrap_or(line);
        let line = line.strip_suffix('\r').unwrap_or(line);
        match line.strip_prefix(bom).filter(|_| start == 0) {
            Some(line) => (bom.len_utf8(), line),
            None => (start, line),
        }
    })
}

fn is_blank_or_comment(line: &str) -> bool {
    let line = line.trim_start();
    line.is_empty() || line.starts_with('#')
}

/// What the parser directive `escape` says; directives come before all else.
fn escape(text: &str) -> char {
    let directives = lines(text).map_while(|(_, line)| line.trim().strip_prefix('#')?.split_once('='));
    for (name, value) in directives {
        if name.trim().eq_ignore_ascii_case("escape") && value.trim() == "`" {
            return '`';
        }
    }
    '\\'
}

/// The line without its mark, if it goes on in the next one.
fn continued(line: &str, escape: char) -> Option<&str> {
    let cut = line.trim_end_matches([' ', '\t']).strip_suffix(escape)?;
    (!cut.ends_with(escape)).then_some(cut)
}

/// How a here-document ends.
struct End {
    word: String,
    without_tabs: bool,
}

impl End {
    fn is(&self, line: &str) -> bool {
        self.word == if self.without_tabs { line.trim_start_matches('\t') } else { line }
    }
}

fn here_documents(instruction: &Instruction, escape: char) -> Vec<End> {
    let words = split(instruction, escape);
    let takes_them = words
        .first()
        .is_some_and(|word| ["RUN", "COPY", "ADD"].iter().any(|keyword| word.text.eq_ignore_ascii_case(keyword)));
    let end = |word: &str| {
        let rest = word.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix("<<")?;
        let (without_tabs, rest) = rest.strip_prefix('-').map_or((false, rest), |rest| (true, rest));
        let word = rest.trim_matches(['"', '\'']);
        let fits = !word.is_empty() && !word.contains('<');
        fits.then(|| End { word: word.to_owned(), without_tabs })
    };
    words.iter().filter(|_| takes_them).filter_map(|word| end(&word.text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        instructions(text).0.into_iter().map(|i| i.into_iter().map(|(_, c)| c).collect()).collect()
    }

    #[test]
    fn instructions_are_told_apart_as_docker_does() {
        let text = "\u{feff}# escape=`\n\n# a comment\nFROM `\r\n# within\n\n  a\r\nRUN x \\\nRUN y `  \n z\n";
        assert_eq!(texts(text), ["FROM   a", "RUN x \\", "RUN y  z"]);
        assert_eq!(texts("# a comment\n# escape=`\nRUN a \\\n b"), ["RUN a  b"], "a comment ends the directives");
        assert_eq!(texts("RUN a \\\\\nRUN b"), ["RUN a \\\\", "RUN b"]);
        assert_eq!(texts("RUN a \\"), ["RUN a "]);
    }

    #[test]
    fn here_documents_hold_no_instructions() {
        let text = "RUN <<EOF 3<<-'B'\nFROM a\nEOF\n\tFROM b\n\tB\nFROM c\nRUN echo $((1<<2))\nFROM d";
        assert_eq!(texts(text), ["RUN <<EOF 3<<-'B'", "FROM c", "RUN echo $((1<<2))", "FROM d"]);
    }

    #[test]
    fn places_are_those_in_the_file() {
        let text = "\u{feff}# é\r\nFROM x\\\n  y";
        for (at, c) in instructions(text).0.remove(0) {
            assert!(text[at..].starts_with(c), "{at} {c}");
        }
    }
}
