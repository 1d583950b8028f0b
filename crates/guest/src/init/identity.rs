use super::asked::Asked;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// `/etc/hosts` before the line of the sandbox itself, as Docker writes it.
const HOSTS: &str = "127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\nfe00::\tip6-localnet\n\
                     ff00::\tip6-mcastprefix\nff02::1\tip6-allnodes\nff02::2\tip6-allrouters\n";

/// D-Bus's own copy of the machine id, where it is no link to the other.
const DBUS_MACHINE_ID: &str = "/var/lib/dbus/machine-id";

/// Writes the files that tell the guest its names: host name, machine id, hosts, name server. In a guest that had another name before, only that name
/// is replaced in its hosts, and its name server stays: no address differs.
pub(super) fn write(asked: &Asked, old_hostname: Option<&str>) -> io::Result<()> {
    if !Path::new("/etc").exists() {
        fs::create_dir("/etc")?;
    }
    put("/etc/hostname", &format!("{}\n", asked.hostname))?;
    let machine_id = format!("{}\n", asked.machine_id);
    put("/etc/machine-id", &machine_id)?;
    if fs::symlink_metadata(DBUS_MACHINE_ID).is_ok_and(|found| found.is_file()) {
        put(DBUS_MACHINE_ID, &machine_id)?;
    }
    let hosts = match old_hostname {
        Some(old) => rename(&fs::read_to_string("/etc/hosts").unwrap_or_default(), old, &asked.hostname),
        None => {
            let own = asked.network.map_or("127.0.1.1".to_owned(), |network| network.address.to_string());
            format!("{HOSTS}{own}\t{}\n", asked.hostname)
        }
    };
    put("/etc/hosts", &hosts)?;
    if let Some(network) = asked.network.filter(|_| old_hostname.is_none()) {
        put("/etc/resolv.conf", &format!("nameserver {}\n", network.dns))?;
    }
    Ok(())
}

/// Writes a file through a link, if it is one that leads anywhere; a dangling one is replaced. In place: a file that is emptied first is
/// written to the disk at its close, which in a fork its programs would wait for.
fn put(path: &str, text: &str) -> io::Result<()> {
    let open = || File::options().write(true).create(true).truncate(false).open(path);
    let mut file = match open() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            fs::remove_file(path)?;
            open()?
        }
        other => other?,
    };
    file.write_all(text.as_bytes())?;
    let len = text.len() as u64;
    if file.metadata()?.len() > len { file.set_len(len) } else { Ok(()) }
}

/// Replaces whole words.
fn rename(hosts: &str, old: &str, new: &str) -> String {
    let words = hosts.split_inclusive([' ', '\t', '\n']);
    let replace = |piece: &str| match piece.strip_prefix(old) {
        Some(end @ ("" | " " | "\t" | "\n")) => format!("{new}{end}"),
        _ => piece.to_owned(),
    };
    words.map(replace).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_name_replaces_whole_words() {
        let hosts = "127.0.0.1\tlocalhost\n10.0.2.15\tsabc x\n1.2.3.4 sabc sabcd\n";
        assert_eq!(rename(hosts, "sabc", "sxyz"), "127.0.0.1\tlocalhost\n10.0.2.15\tsxyz x\n1.2.3.4 sxyz sabcd\n");
    }

    #[test]
    fn a_dangling_link_is_replaced_and_a_live_one_followed() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("resolv.conf");
        let link_text = link.to_str().unwrap();
        std::os::unix::fs::symlink("missing/stub", &link).unwrap();
        put(link_text, "a").unwrap();
        assert!(link.symlink_metadata().unwrap().is_file());
        fs::remove_file(&link).unwrap();
        fs::write(dir.path().join("stub"), "").unwrap();
        std::os::unix::fs::symlink("stub", &link).unwrap();
        put(link_text, "b").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("stub")).unwrap(), "b");
    }
}
