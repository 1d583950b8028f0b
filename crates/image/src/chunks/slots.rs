//! Which slots of the file of chunks are taken. Pure.

/// Slots at the start of the file that only headers of disks may take: a disk's tables name other slots by their distance
/// from its header, which must be positive. So also the most disks of a store.
pub(super) const HEADERS: u32 = 1 << 16;

const BITS: u32 = u64::BITS;

/// One bit a slot.
#[derive(Debug, Default)]
pub(super) struct Slots {
    taken: Vec<u64>,
    /// No slot from [`HEADERS`] up to here is free.
    first_free: u32,
}

impl Slots {
    /// Marks one as taken; whether it was free.
    pub(super) fn mark(&mut self, slot: u32) -> bool {
        let (word, bit) = ((slot / BITS) as usize, 1 << (slot % BITS));
        if self.taken.len() <= word {
            self.taken.resize(word + 1, 0);
        }
        let was_free = self.taken[word] & bit == 0;
        self.taken[word] |= bit;
        was_free
    }

    /// Whether one is taken.
    pub(super) fn is_taken(&self, slot: u32) -> bool {
        self.taken.get((slot / BITS) as usize).is_some_and(|word| word & (1 << (slot % BITS)) != 0)
    }

    /// Takes a free slot for a header; `None` if there are none.
    pub(super) fn take_header(&mut self) -> Option<u32> {
        let slot = self.free_from(0)?;
        (slot < HEADERS && self.mark(slot)).then_some(slot)
    }

    /// Takes a free slot, the lowest; `None` if there are none.
    pub(super) fn take(&mut self) -> Option<u32> {
        let slot = self.free_from(self.first_free.max(HEADERS))?;
        self.first_free = slot.checked_add(1)?;
        self.mark(slot).then_some(slot)
    }

    /// Gives one back.
    pub(super) fn free(&mut self, slot: u32) {
        if let Some(word) = self.taken.get_mut((slot / BITS) as usize) {
            *word &= !(1 << (slot % BITS));
        }
        if slot >= HEADERS {
            self.first_free = self.first_free.min(slot);
        }
    }

    /// One past the last that is taken.
    pub(super) fn end(&self) -> u32 {
        let last = self.taken.iter().rposition(|word| *word != 0);
        last.map_or(0, |word| word as u32 * BITS + BITS - self.taken[word].leading_zeros())
    }

    fn free_from(&self, from: u32) -> Option<u32> {
        let start = (from / BITS) as usize;
        for (index, word) in self.taken.iter().enumerate().skip(start) {
            let below = if index == start { (1 << (from % BITS)) - 1 } else { 0 };
            let free = !(word | below);
            if free != 0 {
                return Some(index as u32 * BITS + free.trailing_zeros());
            }
        }
        u32::try_from(self.taken.len() * BITS as usize).ok().map(|end| end.max(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_taken_from_the_lowest_up_and_again_when_given_back() {
        let mut slots = Slots::default();
        assert_eq!((slots.take_header(), slots.take_header()), (Some(0), Some(1)));
        let taken: Vec<u32> = (0..200).map(|_| slots.take().unwrap()).collect();
        assert_eq!(taken, (HEADERS..HEADERS + 200).collect::<Vec<_>>());
        slots.free(HEADERS + 70);
        slots.free(0);
        assert!(!slots.is_taken(HEADERS + 70));
        assert_eq!((slots.take(), slots.take()), (Some(HEADERS + 70), Some(HEADERS + 200)));
        assert_eq!((slots.take_header(), slots.take_header()), (Some(0), Some(2)));
        assert_eq!(slots.end(), HEADERS + 201);
    }

    #[test]
    fn headers_end_where_chunks_begin() {
        let mut slots = Slots::default();
        (0..HEADERS).for_each(|slot| assert!(slots.mark(slot)));
        assert_eq!(slots.take_header(), None);
        assert_eq!(slots.take(), Some(HEADERS));
        assert!(!slots.mark(HEADERS));
    }
}
