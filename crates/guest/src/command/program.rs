use std::path::Path;

/// Where the tools disk's programs are in the guest.
pub const STAND_IN_DIR: &str = "/dev/warren/tools/bin";

/// The paths to try, in order: the program itself or where `PATH` may have it, then the stand-in of that name.
pub(super) fn candidates(program: &str, path: &str, has_tools: bool) -> Vec<String> {
    let mut out: Vec<String> = if program.contains('/') {
        vec![program.to_owned()]
    } else {
        path.split(':').filter(|dir| !dir.is_empty()).map(|dir| format!("{dir}/{program}")).collect()
    };
    if has_tools && let Some(name) = Path::new(program).file_name().and_then(|name| name.to_str()) {
        out.push(format!("{STAND_IN_DIR}/{name}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_itself_then_its_stand_in() {
        assert_eq!(candidates("/bin/bash", "/x", true), ["/bin/bash", "/dev/warren/tools/bin/bash"]);
        assert_eq!(candidates("/bin/bash", "/x", false), ["/bin/bash"]);
    }

    #[test]
    fn a_name_is_looked_up() {
        let found = candidates("sh", "/a:/b::/c", true);
        assert_eq!(found, ["/a/sh", "/b/sh", "/c/sh", "/dev/warren/tools/bin/sh"]);
        assert_eq!(candidates("..", "", true), Vec::<String>::new());
    }
}
