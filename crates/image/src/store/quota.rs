//! Which images go when there is too much. Pure.

/// Parts of a quota that are left when images had to go: so that not every image that comes makes another go.
const LOW_WATER_PERCENT: u64 = 90;

/// How much may be stored if nobody says: what leaves a tenth of the file system free. All in bytes.
pub(super) fn by_free_space(stored: u64, available: u64, total: u64) -> u64 {
    (stored + available).saturating_sub(total / 10)
}

/// Down to how many bytes images go once more than `quota` is stored; `None` while it is not.
pub(super) fn target(stored: u64, quota: u64) -> Option<u64> {
    (stored > quota).then_some(quota / 100 * LOW_WATER_PERCENT)
}

/// The first of `candidates`, the least recently used first, that have to go so that at most `target` bytes are stored; each with the
/// bytes that `freed` says go with it, as the ones before it have gone.
pub(super) fn choose<C, E>(
    candidates: Vec<C>,
    mut stored: u64,
    target: u64,
    mut freed: impl FnMut(&C) -> Result<u64, E>,
) -> Result<Vec<(C, u64)>, E> {
    let mut chosen = Vec::new();
    for candidate in candidates {
        if stored <= target {
            break;
        }
        let bytes = freed(&candidate)?;
        stored = stored.saturating_sub(bytes);
        chosen.push((candidate, bytes));
    }
    Ok(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_until_it_fits() {
        let choose = |stored, target| {
            let chosen = choose(vec![('a', 5), ('b', 0), ('c', 7), ('d', 9)], stored, target, |c| Ok::<_, ()>(c.1));
            chosen.unwrap().into_iter().map(|((name, _), bytes)| (name, bytes)).collect::<Vec<_>>()
        };
        assert_eq!(choose(21, 21), []);
        assert_eq!(choose(21, 15), [('a', 5), ('b', 0), ('c', 7)]);
        assert_eq!(choose(21, 0).len(), 4);
    }

    #[test]
    fn nothing_goes_below_the_quota_and_some_more_above() {
        assert_eq!(target(1000, 1000), None);
        assert_eq!(target(1001, 1000), Some(900));
        assert_eq!(by_free_space(300, 200, 1000), 400);
        assert_eq!(by_free_space(0, 50, 1000), 0);
    }
}
