//! Sets of blocks. Pure.

use super::alloc::Run;

/// The same blocks in rising order, neighbours joined.
pub(super) fn joined(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_unstable();
    let mut out: Vec<Run> = Vec::new();
    for run in runs {
        match out.last_mut() {
            Some(last) if last.start + last.len == run.start => last.len += run.len,
            _ => out.push(run),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_become_one() {
        let run = |start, len| Run { start, len };
        assert_eq!(joined(vec![run(9, 1), run(3, 2), run(5, 4), run(20, 1)]), [run(3, 7), run(20, 1)]);
        assert!(joined(Vec::new()).is_empty());
    }
}
