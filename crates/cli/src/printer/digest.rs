/// Characters of a digest that people need to tell images apart.
const SHOWN: usize = 12;

/// The start of a digest, without its algorithm.
pub(crate) fn short_digest(digest: &str) -> String {
    let hex = digest.split_once(':').map_or(digest, |(_, hex)| hex);
    hex.chars().take(SHOWN).collect()
}
