//! Which images a Dockerfile builds on: pure. What is not understood here is left to Docker, which tells what is wrong with it.

mod lines;
mod words;

use lines::{Instruction, instructions};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use words::{Word, expand, split};

/// The base that is none.
const SCRATCH: &str = "scratch";

/// An image that a build needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Base {
    /// Its reference, variables put in.
    pub(super) image: String,
    /// The words that name it, bytes of the file.
    pub(super) at: Vec<Range<usize>>,
}

/// Something that a stage builds on.
enum Need {
    Stage(usize),
    Image(String, Range<usize>),
}

#[derive(Default)]
struct Stage {
    name: String,
    needs: Vec<Need>,
}

struct Reading<'a> {
    args: &'a BTreeMap<String, String>,
    platform: String,
    escape: char,
    /// Variables before the first stage, with their values.
    globals: BTreeMap<String, Option<String>>,
    stages: Vec<Stage>,
}

/// The images that the last stage needs, for a machine of `arch` (`amd64`), in the order in which they come. `args` are the values
/// of build arguments.
pub(super) fn bases(text: &str, args: &BTreeMap<String, String>, arch: &str) -> Vec<Base> {
    let (instructions, escape) = instructions(text);
    let mut reading =
        Reading { args, platform: format!("linux/{arch}"), escape, globals: platforms(arch), stages: Vec::new() };
    instructions.iter().for_each(|instruction| reading.read(instruction));
    reading.needed()
}

/// The file with other words in some places, which do not overlap.
pub(super) fn with_words(text: &str, mut words: Vec<(Range<usize>, String)>) -> String {
    words.sort_by_key(|(at, _)| std::cmp::Reverse(at.start));
    let mut text = text.to_owned();
    words.into_iter().for_each(|(at, word)| text.replace_range(at, &word));
    text
}

/// Variables that Docker sets.
fn platforms(arch: &str) -> BTreeMap<String, Option<String>> {
    let of = |side: &str| {
        [("PLATFORM", format!("linux/{arch}")), ("OS", "linux".to_owned()), ("ARCH", arch.to_owned())]
            .map(|(what, value)| (format!("{side}{what}"), Some(value)))
    };
    of("BUILD").into_iter().chain(of("TARGET")).collect()
}

impl Reading<'_> {
    fn read(&mut self, instruction: &Instruction) {
        let words = split(instruction, self.escape);
        let Some((keyword, words)) = words.split_first() else { return };
        let flags = words.iter().take_while(|word| word.text.starts_with("--")).count();
        let (flags, words) = words.split_at(flags);
        match keyword.text.to_ascii_uppercase().as_str() {
            "ARG" if self.stages.is_empty() => words.iter().for_each(|word| self.arg(word)),
            "FROM" => self.from(flags, words),
            "COPY" | "ADD" => flags.iter().for_each(|flag| self.copy(flag)),
            "RUN" => flags.iter().for_each(|flag| self.mount(flag)),
            _ => {}
        }
    }

    fn arg(&mut self, word: &Word) {
        let (name, default) = match word.text.split_once('=') {
            Some((name, default)) => (name, self.meant(default)),
            None => (word.text.as_str(), None),
        };
        let value = self.args.get(name).cloned().or(default);
        // One without a value keeps what Docker sets.
        if value.is_some() || !self.globals.contains_key(name) {
            self.globals.insert(name.to_owned(), value);
        }
    }

    fn from(&mut self, flags: &[Word], words: &[Word]) {
        let name = match words {
            [_, between, name, ..] if between.text.eq_ignore_ascii_case("as") => name.text.to_ascii_lowercase(),
            _ => String::new(),
        };
        let platform = flags.iter().find_map(|flag| flag.text.strip_prefix("--platform="));
        let platform = platform.map(|word| self.meant(word));
        let is_ours = platform.is_none_or(|word| word.is_some_and(|word| word.is_empty() || word == self.platform));
        let meant = words.first().and_then(|word| Some((self.meant(&word.text)?, word.at.clone())));
        let need = meant.filter(|(image, _)| !image.is_empty()).and_then(|(image, at)| match self.stage(&image) {
            Some(stage) => Some(Need::Stage(stage)),
            None if image == SCRATCH || !is_ours => None,
            None => Some(Need::Image(image, at)),
        });
        self.stages.push(Stage { name, needs: need.into_iter().collect() });
    }

    fn copy(&mut self, flag: &Word) {
        if let Some(from) = flag.text.strip_prefix("--from=") {
            self.take(from, flag.at.end - from.len()..flag.at.end);
        }
    }

    fn mount(&mut self, flag: &Word) {
        let Some(mount) = flag.text.strip_prefix("--mount=") else { return };
        let mut at = flag.at.end - mount.len();
        for part in mount.split(',') {
            if let Some(from) = part.strip_prefix("from=") {
                self.take(from, at + part.len() - from.len()..at + part.len());
            }
            at += part.len() + 1;
        }
    }

    /// Files are taken from a stage, by name or number, or from an image. There are no variables here.
    fn take(&mut self, from: &str, at: Range<usize>) {
        let before = self.stages.len().saturating_sub(1);
        let numbered = from.parse().ok().filter(|number| *number < before);
        let need = match numbered.or_else(|| self.stage(from).filter(|stage| *stage < before)) {
            Some(stage) => Need::Stage(stage),
            None if from.is_empty() || from == SCRATCH || from.contains(['$', '"', '\'', self.escape]) => return,
            None => Need::Image(from.to_owned(), at),
        };
        if let Some(stage) = self.stages.last_mut() {
            stage.needs.push(need);
        }
    }

    /// The last stage of a name.
    fn stage(&self, name: &str) -> Option<usize> {
        self.stages.iter().rposition(|stage| !stage.name.is_empty() && stage.name.eq_ignore_ascii_case(name))
    }

    fn meant(&self, word: &str) -> Option<String> {
        expand(word, self.escape, &|name| self.globals.get(name).cloned().flatten())
    }

    /// Stages that the last one does not need are not built.
    fn needed(&self) -> Vec<Base> {
        let mut seen = BTreeSet::new();
        let mut open: Vec<usize> = self.stages.len().checked_sub(1).into_iter().collect();
        while let Some(stage) = open.pop() {
            if seen.insert(stage) {
                let needs = self.stages[stage].needs.iter();
                open.extend(needs.filter_map(|need| if let Need::Stage(stage) = need { Some(*stage) } else { None }));
            }
        }
        let mut bases: Vec<Base> = Vec::new();
        for need in seen.into_iter().flat_map(|stage| &self.stages[stage].needs) {
            let Need::Image(image, at) = need else { continue };
            match bases.iter_mut().find(|base| base.image == *image) {
                Some(base) => base.at.push(at.clone()),
                None => bases.push(Base { image: image.clone(), at: vec![at.clone()] }),
            }
        }
        bases
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
