use super::*;
use proptest::prelude::*;

const HEX: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

fn canonical(text: &str) -> String {
    Reference::parse(text).unwrap_or_else(|e| panic!("{text}: {e}")).to_string()
}

#[test]
fn docker_hub_is_the_default() {
    for text in ["ubuntu", "ubuntu:latest", "library/ubuntu", "docker.io/ubuntu", "index.docker.io/library/ubuntu"] {
        assert_eq!(canonical(text), "ubuntu:latest", "{text}");
    }
    let reference = Reference::parse("ubuntu:22.04").unwrap();
    assert_eq!((reference.registry(), reference.repository()), (Some(DOCKER_HUB), "library/ubuntu"));
    assert_eq!(canonical("a/b"), "a/b:latest");
    assert_eq!(canonical("foo.bar:1"), "foo.bar:1");
    assert_eq!(canonical("volume-import:dev"), "volume-import:dev");
    assert_eq!(canonical("docker.io/prime/a/b"), "docker.io/prime/a/b:latest");
    assert_eq!(canonical("docker.io/a.b/c"), "docker.io/a.b/c:latest");
}

#[test]
fn a_first_part_with_dot_or_colon_is_a_host() {
    for (text, host, repository) in [
        ("localhost/x", "localhost", "x"),
        ("localhost:5000/x/y:t", "localhost:5000", "x/y"),
        ("GHCR.io/a/b", "ghcr.io", "a/b"),
        ("127.0.0.1:5000/x", "127.0.0.1:5000", "x"),
        ("[::1]:5000/x", "[::1]:5000", "x"),
        ("public.ecr.aws/a/b/c:1", "public.ecr.aws", "a/b/c"),
    ] {
        let reference = Reference::parse(text).unwrap();
        assert_eq!((reference.registry(), reference.repository()), (Some(host), repository), "{text}");
    }
}

#[test]
fn owned_images() {
    assert_eq!(canonical("prime/alice/app:v1"), "prime/alice/app:v1");
    assert_eq!(canonical("prime/team-cAb1/app"), "prime/team-cAb1/app:latest");
    assert_eq!(canonical("team-7/app:v1"), "prime/team-7/app:v1");
    let known = Reference::parse_with_users("user7/app", |id| id == "user7").unwrap();
    assert_eq!(known.to_string(), "prime/user7/app:latest");
    assert_eq!(known.registry(), None);
    assert_eq!(canonical("user7/app"), "user7/app:latest");
    for bad in ["prime/x", "prime/a/b/c", "prime//b", "prime/../b", "team-1/a/b"] {
        assert!(Reference::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn digests_win_over_tags() {
    let text = format!("debian:12@sha256:{HEX}");
    assert_eq!(canonical(&text), format!("debian@sha256:{HEX}"));
    assert_eq!(Reference::parse(&text).unwrap().digest().unwrap().hex(), HEX);
}

#[test]
fn registries_are_written_in_many_ways() {
    for (text, host) in [
        ("docker.io", "docker.io"),
        ("https://index.docker.io/v1/", "docker.io"),
        ("registry-1.docker.io", "docker.io"),
        ("GHCR.io", "ghcr.io"),
        ("http://localhost:5000/", "localhost:5000"),
        ("[::1]:5000", "[::1]:5000"),
    ] {
        assert_eq!(parse_registry(text).as_deref(), Ok(host));
    }
    for bad in ["", "ghcr", "https://", "a b.c", "user@host.io", "host.io:99999", "../x.y", "\0.a"] {
        assert!(parse_registry(bad).is_err(), "{bad:?}");
    }
}

#[test]
fn hostile_text_is_refused() {
    let long = "a".repeat(600);
    let upper_hex = format!("a@sha256:{}", HEX.to_uppercase());
    for bad in [
        "",
        "/",
        "a/",
        "/a",
        "a//b",
        "../a",
        "a/../b",
        "./a",
        "a/./b",
        "..",
        "a\0b",
        "a b",
        "a\nb",
        "%2e%2e/a",
        "a:",
        "a:b:c",
        "a:-x",
        "a@",
        "a@sha256:12",
        "a@md5:12",
        "A",
        "a/B",
        "-a",
        "a-",
        "a..b",
        "a___b",
        "host:0/a",
        "host:99999/a",
        "host:x/a",
        "[::1/a",
        "[x]:1/a",
        ".a/b",
        "é",
        "https://ghcr.io/a",
        "user@host/a",
        "a?b",
        &long,
        &upper_hex,
    ] {
        assert!(Reference::parse(bad).is_err(), "{bad:?}");
    }
}

proptest! {
    #[test]
    fn canonical_text_means_the_same(text in "(docker.io/)?([a-zA-Z0-9.:-]{1,12}/)?[a-z0-9._/-]{1,20}(:[a-zA-Z0-9._-]{1,5})?") {
        if let Ok(reference) = Reference::parse(&text) {
            prop_assert_eq!(Reference::parse(&reference.to_string()), Ok(reference));
        }
    }

    #[test]
    fn no_text_makes_a_path_that_climbs(text in ".{0,80}") {
        if let Ok(reference) = Reference::parse(&text) {
            prop_assert!(reference.repository().split('/').all(|part| !part.is_empty() && part != "." && part != ".."));
        }
    }
}

#[test]
fn repositories_are_shared_by_host_and_name_or_by_owner() {
    let shares = |a: &str, b: &str| Reference::parse(a).unwrap().shares_repository_with(&Reference::parse(b).unwrap());
    assert!(shares("app:1", "docker.io/library/app:2") && shares("h.example/app:1", "h.example/app:2"));
    assert!(!shares("h.example/app:1", "g.example/app:1") && !shares("app:1", "app2:1"));
    assert!(shares("prime/_checkpoint/k1:1", "prime/_checkpoint/k2:1"));
    assert!(!shares("prime/_checkpoint/k1:1", "prime/ann/k1:1") && !shares("prime/ann/app:1", "app:1"));
}
