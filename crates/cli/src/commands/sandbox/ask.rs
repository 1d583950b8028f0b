use crate::failure::Failure;
use std::io::{self, IsTerminal as _, Write as _};

/// Asks on the terminal; without one, the answer has to be given as `--yes`.
pub(super) fn confirmed(question: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() {
        return Err(Failure::new(format!("{question} nobody to ask")).hint("say --yes to do it"));
    }
    let mut answer = String::new();
    write!(io::stderr(), "{question} [y/N] ")?;
    io::stderr().flush()?;
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
