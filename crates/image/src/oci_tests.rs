use super::*;
use proptest::prelude::*;
use serde_json::json;

fn digest_of(n: u8) -> String {
    format!("sha256:{}", format!("{n:02x}").repeat(32))
}

fn document(value: serde_json::Value) -> Result<Document, OciError> {
    parse_document(value.to_string().as_bytes())
}

#[test]
fn an_index_gives_the_entry_for_this_machine() {
    let entry = |n: u8, os: &str, arch: &str| json!({"digest": digest_of(n), "size": n, "platform": {"os": os, "architecture": arch}});
    let index =
        json!({"manifests": [entry(1, "linux", "arm64"), entry(2, "linux", "amd64"), entry(3, "unknown", "unknown")]});
    let Ok(Document::Index(found)) = document(index) else { panic!() };
    assert_eq!(found.digest.as_str(), digest_of(2));
    let arm = json!({"manifests": [entry(1, "linux", "arm64"), entry(3, "unknown", "unknown")]});
    assert_eq!(document(arm), Err(OciError::WrongArchitecture("linux/arm64".to_owned())));
}

#[test]
fn a_manifest_gives_config_and_layers() {
    let layer = json!({"mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": digest_of(2), "size": 5});
    let manifest = json!({"config": {"digest": digest_of(1), "size": 4}, "layers": [layer]});
    let Ok(Document::Manifest(found)) = document(manifest) else { panic!() };
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
        let _ = parse_document(&bytes);
        let _ = parse_config(&bytes);
    }
}
