use super::*;
use crate::egress::Ipv4Net;
use proptest::prelude::*;

fn rules(entries: &[&str]) -> Vec<Rule> {
    entries.iter().map(|e| e.parse().unwrap()).collect()
}

fn allow(entries: &[&str]) -> EgressPolicy {
    EgressPolicy::Allow(rules(entries))
}

fn deny(entries: &[&str]) -> EgressPolicy {
    EgressPolicy::Deny(rules(entries))
}

fn names(texts: &[&str]) -> Vec<HostName> {
    texts.iter().map(|t| HostName::parse(t).unwrap()).collect()
}

fn closed() -> ClosedRanges {
    ClosedRanges::with(["10.0.2.0/24", "10.96.0.0/12", "192.168.1.7"].map(|net| net.parse().unwrap()))
}

fn tcp(policy: &EgressPolicy, address: &str, port: u16, known: &[&str]) -> Verdict {
    let names = names(known);
    let flow = Flow { address: address.parse().unwrap(), port, protocol: Protocol::Tcp, names: &names };
    decide(policy, &closed(), &flow)
}

#[test]
fn an_empty_list_closes_or_opens_everything() {
    assert_eq!(tcp(&allow(&[]), "1.1.1.1", 443, &["a.example"]), Verdict::Deny(Denial::NotAllowed));
    assert_eq!(tcp(&deny(&[]), "1.1.1.1", 443, &[]), Verdict::Allow);
    assert_eq!(tcp(&allow(&["*"]), "1.1.1.1", 443, &[]), Verdict::Allow);
    assert_eq!(tcp(&deny(&["*"]), "1.1.1.1", 443, &[]), Verdict::Deny(Denial::Denied));
}

#[test]
fn closed_ranges_stay_closed_under_every_list() {
    let closed = ["127.0.0.1", "127.9.9.9", "0.0.0.0", "169.254.169.254", "224.0.0.1", "255.255.255.255", "10.0.2.2"];
    for address in closed.into_iter().chain(["10.96.0.1", "192.168.1.7"]) {
        for policy in
            [deny(&[]), allow(&["*"]), allow(&["0.0.0.0/0"]), allow(&["a.example"]), allow(&["192.168.0.0/16"])]
        {
            assert_eq!(
                tcp(&policy, address, 443, &["a.example"]),
                Verdict::Deny(Denial::Closed),
                "{address} {policy:?}"
            );
        }
    }
}

#[test]
fn a_rule_within_a_closed_range_opens_just_that() {
    let policy = allow(&["169.254.169.254:80", "10.100.0.0/16", "192.168.1.7", "127.0.0.1", "0.0.0.0"]);
    assert_eq!(tcp(&policy, "169.254.169.254", 80, &[]), Verdict::Allow);
    assert_eq!(tcp(&policy, "169.254.169.254", 81, &[]), Verdict::Deny(Denial::Closed));
    assert_eq!(tcp(&policy, "169.254.169.253", 80, &[]), Verdict::Deny(Denial::Closed));
    assert_eq!(tcp(&policy, "10.100.3.4", 1, &[]), Verdict::Allow);
    assert_eq!(tcp(&policy, "192.168.1.7", 1, &[]), Verdict::Allow);
    assert_eq!(tcp(&policy, "127.0.0.1", 1, &[]), Verdict::Deny(Denial::Closed));
    assert_eq!(tcp(&policy, "0.0.0.0", 1, &[]), Verdict::Deny(Denial::Closed));
}

#[test]
fn names_match_on_any_port_unless_the_rule_has_ports() {
    let policy = allow(&["a.example", "*.b.example:443"]);
    assert_eq!(tcp(&policy, "1.1.1.1", 8443, &["a.example"]), Verdict::Allow);
    assert_eq!(tcp(&policy, "1.1.1.1", 443, &["a.example"]), Verdict::Inspect);
    assert_eq!(tcp(&policy, "1.1.1.1", 443, &["x.y.b.example"]), Verdict::Inspect);
    assert_eq!(tcp(&policy, "1.1.1.1", 80, &["x.b.example"]), Verdict::Deny(Denial::NotAllowed));
    assert_eq!(tcp(&policy, "1.1.1.1", 443, &["b.example"]), Verdict::Deny(Denial::NotAllowed));
    assert_eq!(tcp(&policy, "1.1.1.1", 443, &[]), Verdict::Deny(Denial::NotAllowed));
}

#[test]
fn deny_by_name_is_told_by_the_flow_where_the_flow_tells() {
    let policy = deny(&["bad.example", "6.6.6.0/24", "9.9.9.9:53"]);
    assert_eq!(tcp(&policy, "1.1.1.1", 443, &["bad.example"]), Verdict::Inspect);
    assert_eq!(tcp(&policy, "1.1.1.1", 22, &["bad.example"]), Verdict::Deny(Denial::Denied));
    assert_eq!(tcp(&policy, "1.1.1.1", 22, &["good.example"]), Verdict::Allow);
    assert_eq!(tcp(&policy, "6.6.6.6", 443, &[]), Verdict::Deny(Denial::Denied));
    assert_eq!(tcp(&policy, "9.9.9.9", 53, &[]), Verdict::Deny(Denial::Denied));
    assert_eq!(tcp(&policy, "9.9.9.9", 54, &[]), Verdict::Allow);
}

#[test]
fn icmp_is_covered_by_rules_without_ports_only() {
    let flow =
        |address: &str| Flow { address: address.parse().unwrap(), port: 80, protocol: Protocol::Icmp, names: &[] };
    let policy = allow(&["1.1.1.1:80", "2.2.2.2"]);
    assert_eq!(decide(&policy, &closed(), &flow("1.1.1.1")), Verdict::Deny(Denial::NotAllowed));
    assert_eq!(decide(&policy, &closed(), &flow("2.2.2.2")), Verdict::Allow);
}

#[test]
fn which_names_may_be_asked_and_presented() {
    let name = |text| HostName::parse(text).unwrap();
    let listed = allow(&["a.example:443", "*.b.example", "1.2.3.4"]);
    assert!(may_ask(&listed, &name("a.example")) && may_ask(&listed, &name("c.b.example")));
    assert!(!may_ask(&listed, &name("b.example")));
    assert!(may_ask(&allow(&["0.0.0.0/0"]), &name("b.example")));
    let unlisted = deny(&["a.example", "c.example:443"]);
    assert!(!may_ask(&unlisted, &name("a.example")));
    assert!(may_ask(&unlisted, &name("b.example")) && may_ask(&unlisted, &name("c.example")));

    assert!(may_present(&listed, 443, Some(&name("a.example"))));
    assert!(!may_present(&listed, 80, Some(&name("a.example"))));
    assert!(!may_present(&listed, 443, Some(&name("other.example"))) && !may_present(&listed, 443, None));
    assert!(!may_present(&unlisted, 443, Some(&name("c.example"))));
    assert!(may_present(&unlisted, 80, Some(&name("c.example"))) && may_present(&unlisted, 443, None));
}

fn entry() -> impl Strategy<Value = String> {
    let host = prop_oneof![
        Just("*".to_owned()),
        "(\\*\\.)?[a-zA-Z][a-z0-9_-]{0,8}(\\.[a-z]{1,6}){0,3}\\.?",
        (any::<[u8; 4]>(), proptest::option::of(0u8..=32)).prop_map(|([a, b, c, d], len)| match len {
            Some(len) => format!("{a}.{b}.{c}.{d}/{len}"),
            None => format!("{a}.{b}.{c}.{d}"),
        }),
    ];
    let ports = prop_oneof![
        Just(String::new()),
        (1u16..).prop_map(|p| format!(":{p}")),
        (1u16.., 1u16..).prop_map(|(a, b)| format!(":{}-{}", a.min(b), a.max(b))),
    ];
    (host, ports).prop_map(|(host, ports)| host + &ports)
}

proptest! {
    #[test]
    fn parsing_never_panics_and_canonical_text_is_a_fixed_point(text in prop_oneof![entry(), any::<String>()]) {
        if let Ok(rule) = text.parse::<Rule>() {
            let canonical = rule.to_string();
            prop_assert_eq!(canonical.parse::<Rule>().unwrap(), rule);
        }
    }

    #[test]
    fn every_entry_of_the_grammar_parses(text in entry()) {
        prop_assert!(text.parse::<Rule>().is_ok(), "{}", text);
    }

    #[test]
    fn loopback_never_opens(entries in proptest::collection::vec(entry(), 0..8), rest in any::<[u8; 3]>(), port: u16) {
        let entries: Vec<Rule> = entries.iter().map(|e| e.parse().unwrap()).collect();
        let [b, c, d] = rest;
        let flow = Flow { address: Ipv4Addr::new(127, b, c, d), port, protocol: Protocol::Tcp, names: &[] };
        for policy in [EgressPolicy::Allow(entries.clone()), EgressPolicy::Deny(entries)] {
            prop_assert_eq!(decide(&policy, &closed(), &flow), Verdict::Deny(Denial::Closed));
        }
    }

    #[test]
    fn on_open_addresses_the_same_address_rules_give_opposite_verdicts(
        nets in proptest::collection::vec((any::<[u8; 4]>(), 0u8..=8), 0..6), address in any::<[u8; 4]>(), port: u16,
    ) {
        let address = Ipv4Addr::from(address);
        prop_assume!(!closed().contains(address));
        let entries: Vec<Rule> = nets.into_iter()
            .map(|(base, len)| Rule { target: Target::Net(Ipv4Net::new(base.into(), len).unwrap()), ports: None }).collect();
        let flow = Flow { address, port, protocol: Protocol::Udp, names: &[] };
        let allowed = decide(&EgressPolicy::Allow(entries.clone()), &closed(), &flow) == Verdict::Allow;
        let denied = decide(&EgressPolicy::Deny(entries), &closed(), &flow) == Verdict::Deny(Denial::Denied);
        prop_assert_eq!(allowed, denied);
    }
}
