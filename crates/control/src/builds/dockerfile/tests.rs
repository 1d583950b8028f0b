use super::*;
use proptest::prelude::*;

fn images(text: &str, args: &[(&str, &str)]) -> Vec<String> {
    let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let bases = bases(text, &args, "amd64");
    bases.into_iter().map(|base| base.image).collect()
}

#[test]
fn bases_of_all_kinds() {
    let text = "\
# syntax=docker/dockerfile:1
from debian:12 AS Base
RUN echo FROM nothing:1
FROM --platform=$BUILDPLATFORM prime/alice/app:v1 as tools
COPY --from=base --chown=1:2 /a /b
COPY --from=ghcr.io/o/files:v2 /x /y
ADD --chmod=644 --from=0 /x /y
RUN --mount=type=cache,target=/c --mount=type=bind,from=busybox,source=/bin,target=/m ls
FROM scratch
COPY --from=TOOLS / /
COPY --from=debian:12 /etc/os-release /
";
    assert_eq!(images(text, &[]), ["debian:12", "prime/alice/app:v1", "ghcr.io/o/files:v2", "busybox"]);
}

#[test]
fn stages_that_are_not_needed_need_nothing() {
    assert_eq!(images("FROM a AS x\nFROM b AS y\nFROM c AS z\nFROM x\nCOPY --from=1 / /\n", &[]), ["a", "b"]);
    assert_eq!(images("FROM a AS a\nFROM a\n", &[]), ["a"], "a stage may have the name of its base");
    assert_eq!(images("FROM scratch\nADD x /\n", &[]), [""; 0]);
    assert_eq!(images("", &[]), [""; 0]);
}

#[test]
fn variables_are_those_before_the_first_stage() {
    let text = "ARG TAG=12\nARG BASE=debian:$TAG\nARG NONE\nFROM ${BASE} AS one\nARG TAG=13\nFROM app:${NONE:-v$TAG}\nCOPY --from=one / /\n";
    assert_eq!(images(text, &[]), ["debian:12", "app:v12"]);
    assert_eq!(images(text, &[("TAG", "11"), ("NONE", "n")]), ["debian:11", "app:n"]);
    assert_eq!(images("FROM $UNKNOWN\n", &[("UNKNOWN", "x")]), [""; 0], "one that is not declared");
    assert_eq!(images("FROM app-$TARGETARCH:1\n", &[]), ["app-amd64:1"]);
}

#[test]
fn images_for_other_machines_are_left_to_docker() {
    assert_eq!(images("FROM --platform=linux/arm64 a\n", &[]), [""; 0]);
    assert_eq!(images("FROM --platform=linux/amd64 a\n", &[]), ["a"]);
}

#[test]
fn words_are_replaced_where_they_stand() {
    let text = "FROM a@b AS x\nFROM x\nCOPY --from=a@b é /\nRUN --mount=from=a@b,target=/m ls\nFROM \\\n \"a@b\"\nCOPY --from=1 / /\n";
    let found = bases(text, &BTreeMap::new(), "amd64");
    assert_eq!(found.len(), 1);
    let words = found[0].at.iter().map(|at| (at.clone(), "n:1".to_owned())).collect();
    let wanted = "FROM n:1 AS x\nFROM x\nCOPY --from=n:1 é /\nRUN --mount=from=n:1,target=/m ls\nFROM \\\n n:1\nCOPY --from=1 / /\n";
    assert_eq!(with_words(text, words), wanted);
}

proptest! {
    #[test]
    fn any_text_is_survived(text in "(FROM|ARG|COPY --from=|RUN --mount=from=|[ a$={}\"'\\\\,é]|\n|<<E){0,30}") {
        for base in bases(&text, &BTreeMap::new(), "amd64") {
            for at in base.at {
                prop_assert!(text.get(at).is_some());
            }
        }
    }
}
