use crate::command::STAND_IN_DIR;
use std::path::Path;

/// Tools that the public clients rely on.
const TOOLS: [&str; 16] = [
    "sh", "nohup", "mkdir", "test", "cat", "grep", "chmod", "rm", "mv", "dirname", "head", "base64", "mktemp", "bash",
    "sleep", "env",
];
/// Where most images have all of them; looked at first.
const USUAL: [&str; 2] = ["/usr/bin", "/bin"];

/// Whether the stand-ins belong into `PATH`: they are there, and the image lacks one of [`TOOLS`].
pub(super) fn are_needed(path: Option<&str>) -> bool {
    let path: Vec<&str> = path.map(|path| path.split(':').collect()).unwrap_or_default();
    let is_in_image = |tool: &str| {
        let mut folders = USUAL.iter().chain(&path);
        folders.any(|folder| Path::new(folder).join(tool).exists())
    };
    Path::new(STAND_IN_DIR).exists() && !TOOLS.iter().all(|tool| is_in_image(tool))
}
