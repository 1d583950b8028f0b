use super::*;
use proptest::prelude::*;
use serde_json::json;

fn digest_of(n: u8) -> String {
    format!("sha256:{}", format!("{n:02x}").repeat(32))
}

fn document(value: serde_json::Value) -> Result<Looked, OciError> {
    Search::default().look(value.to_string().as_bytes())
}

fn index_of(n: u8) -> serde_json::Value {
    json!({"mediaType": "application/vnd.oci.image.index.v1+json", "digest": digest_of(n), "size": n})
}

fn look(search: &mut Search, value: serde_json::Value) -> Result<String, OciError> {
    match search.look(value.to_string().as_bytes())? {
        Looked::Next(entry) => Ok(entry.digest.to_string()),
        Looked::Manifest(_) => Ok("found".to_owned()),
    }
}

#[test]
fn an_index_gives_the_entry_for_this_machine() {
    let entry = |n: u8, os: &str, arch: &str| json!({"digest": digest_of(n), "size": n, "platform": {"os": os, "architecture": arch}});
    let index =
        json!({"manifests": [entry(1, "linux", "arm64"), entry(2, "linux", "amd64"), entry(3, "unknown", "unknown")]});
    let Ok(Looked::Next(found)) = document(index) else { panic!() };
    assert_eq!(found.digest.as_str(), digest_of(2));
    let arm = json!({"manifests": [entry(1, "linux", "arm64"), entry(3, "unknown", "unknown")]});
    assert_eq!(document(arm), Err(OciError::WrongArchitecture("linux/arm64".to_owned())));
}

#[test]
fn indexes_within_indexes_are_gone_through() {
    let entry = |n: u8, arch: &str| json!({"digest": digest_of(n), "size": n, "platform": {"os": "linux", "architecture": arch}});
    let mut search = Search::default();
    let outer = json!({"manifests": [index_of(1), index_of(2)]});
    assert_eq!(look(&mut search, outer.clone()), Ok(digest_of(1)));
    assert_eq!(look(&mut search, json!({"manifests": [entry(3, "arm64")]})), Ok(digest_of(2)));
    assert_eq!(look(&mut search, json!({"manifests": [entry(4, "amd64")]})), Ok(digest_of(4)));
    let manifest = json!({"config": {"digest": digest_of(5), "size": 1}, "layers": []});
    assert_eq!(look(&mut search, manifest), Ok("found".to_owned()));

    let mut search = Search::default();
    look(&mut search, outer).unwrap();
    look(&mut search, json!({"manifests": [entry(3, "s390x")]})).unwrap();
    let nothing = look(&mut search, json!({"manifests": [entry(3, "arm64")]}));
    assert_eq!(nothing, Err(OciError::WrongArchitecture("linux/arm64, linux/s390x".to_owned())));
}

#[test]
fn the_search_ends() {
    let mut deep = Search::default();
    for n in 0..4 {
        look(&mut deep, json!({"manifests": [index_of(n)]})).unwrap();
    }
    assert_eq!(look(&mut deep, json!({"manifests": [index_of(9)]})), Err(OciError::TooDeep));
    let mut wide = Search::default();
    let entries: Vec<_> = (0..200).map(index_of).collect();
    let looked_at = (0..1000).find(|_| look(&mut wide, json!({"manifests": entries})).is_err());
    assert!(looked_at.unwrap() < 40);
}

#[test]
fn a_manifest_gives_config_and_layers() {
    let layer = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest_of(2), "size": 5});
    let manifest = json!({"config": {"digest": digest_of(1), "size": 4}, "layers": [layer]});
    let Ok(Looked::Manifest(found)) = document(manifest) else { panic!() };
    assert_eq!(found.layers[0].size, 5);
    let other = json!({"mediaType": "application/wasm", "digest": digest_of(2), "size": 5});
    let wasm = json!({"config": {"digest": digest_of(1), "size": 4}, "layers": [other]});
    assert!(matches!(document(wasm), Err(OciError::Unsupported(_))));
    assert!(matches!(document(json!({"schemaVersion": 1})), Err(OciError::Unsupported(_))));
}

#[test]
fn a_config_gives_what_a_process_needs() {
    let config = json!({"architecture": "amd64", "os": "linux",
        "config": {"Env": ["A=b=c", "D"], "User": "", "WorkingDir": "/w", "Cmd": ["sh"], "Entrypoint": null},
        "rootfs": {"type": "layers", "diff_ids": [digest_of(1)]}});
    let config = parse_config(config.to_string().as_bytes()).unwrap();
    assert_eq!(config.env["A"], "b=c");
    assert_eq!(config.env["D"], "");
    assert_eq!((config.user, config.workdir.as_deref()), (None, Some("/w")));
    let arm = json!({"architecture": "arm64", "os": "linux"});
    assert!(matches!(parse_config(arm.to_string().as_bytes()), Err(OciError::WrongArchitecture(_))));
}

proptest! {
    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = Search::default().look(&bytes);
        let _ = parse_config(&bytes);
    }
}
