//! Which names the guest was given an address for.

use crate::limits;
use std::collections::{HashMap, VecDeque};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use warren_model::egress::HostName;

/// Remembers DNS answers for the rules on names. Bounded; the oldest answers are forgotten first.
#[derive(Default)]
pub(crate) struct Names {
    by_address: HashMap<Ipv4Addr, Vec<Known>>,
    /// Addresses in the order in which they were first learned.
    order: VecDeque<Ipv4Addr>,
}

struct Known {
    name: HostName,
    until: Instant,
}

impl Names {
    /// The guest was told that `name` has `address`.
    pub(crate) fn learn(&mut self, name: &HostName, address: Ipv4Addr, ttl: Duration, now: Instant) {
        let until = now + ttl.clamp(limits::NAME_TTL_MIN, limits::NAME_TTL_MAX);
        if !self.by_address.contains_key(&address) {
            self.make_room();
            self.order.push_back(address);
        }
        let known = self.by_address.entry(address).or_default();
        known.retain(|k| k.until > now && k.name != *name);
        if known.len() == limits::NAMES_PER_ADDRESS_MAX {
            known.remove(0);
        }
        known.push(Known { name: name.clone(), until });
    }

    /// The names that still hold for `address`.
    pub(crate) fn of(&self, address: Ipv4Addr, now: Instant) -> Vec<HostName> {
        let known = self.by_address.get(&address).into_iter().flatten();
        known.filter(|k| k.until > now).map(|k| k.name.clone()).collect()
    }

    fn make_room(&mut self) {
        while self.by_address.len() >= limits::NAMED_ADDRESSES_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_address.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> HostName {
        HostName::parse(text).unwrap()
    }

    #[test]
    fn names_last_for_their_ttl_but_not_less_than_the_floor() {
        let (mut names, now) = (Names::default(), Instant::now());
        let address = Ipv4Addr::new(1, 2, 3, 4);
        names.learn(&name("a.example"), address, Duration::ZERO, now);
        names.learn(&name("b.example"), address, 2 * limits::NAME_TTL_MIN, now);
        assert_eq!(names.of(address, now), [name("a.example"), name("b.example")]);
        assert_eq!(names.of(address, now + limits::NAME_TTL_MIN), [name("b.example")]);
        assert_eq!(names.of(address, now + 3 * limits::NAME_TTL_MIN), []);
        assert_eq!(names.of(Ipv4Addr::new(4, 3, 2, 1), now), []);
    }

    #[test]
    fn memory_is_bounded_and_the_oldest_goes_first() {
        let (mut names, now) = (Names::default(), Instant::now());
        for i in 0..2 * limits::NAMED_ADDRESSES_MAX as u32 {
            names.learn(&name("a.example"), Ipv4Addr::from_bits(i), Duration::ZERO, now);
        }
        assert_eq!(names.by_address.len(), limits::NAMED_ADDRESSES_MAX);
        assert_eq!(names.order.len(), limits::NAMED_ADDRESSES_MAX);
        assert!(names.of(Ipv4Addr::from_bits(0), now).is_empty());
        let last = Ipv4Addr::from_bits(2 * limits::NAMED_ADDRESSES_MAX as u32 - 1);
        for i in 0..2 * limits::NAMES_PER_ADDRESS_MAX {
            names.learn(&name(&format!("n{i}.example")), last, Duration::ZERO, now);
        }
        assert_eq!(names.of(last, now).len(), limits::NAMES_PER_ADDRESS_MAX);
    }
}
