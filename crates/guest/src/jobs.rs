//! State of the background jobs that clients build from commands: files in `/tmp`, named by the job's id.

use crate::http::Refusal;
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use warren_proto::guest::limits::JOBS_MAX;
use warren_proto::guest::{JobState, JobsAnswer, JobsRequest};

/// Most that is read of a job's status or pid file, bytes.
const FILE_LEN_MAX: u64 = 64;
/// Most that is read of a command line, bytes.
const COMMAND_LINE_LEN_MAX: u64 = 4 << 20;
/// How long a job may take between making its folder and writing its pid.
const LAUNCH_TIME: Duration = Duration::from_secs(60);

/// `POST /warren/jobs`. `proc` is where the commands find their own pids.
pub fn states(asked: JobsRequest, proc: &Path) -> Result<JobsAnswer, Refusal> {
    if asked.job_ids.len() > JOBS_MAX {
        return Err(Refusal::bad_request(format!("job_ids: at most {JOBS_MAX}")));
    }
    let well_formed = |id: &String| id.len() == 8 && id.bytes().all(|b| b.is_ascii_hexdigit());
    if let Some(bad) = asked.job_ids.iter().find(|id| !well_formed(id)) {
        return Err(Refusal::bad_request(format!("job_ids: expected 8 hex digits, got {bad:?}")));
    }
    let jobs = asked.job_ids.iter().map(|id| Job::new(Path::new("/tmp"), proc, id).state()).collect();
    Ok(JobsAnswer { jobs })
}

/// Where a job keeps its state.
struct Job {
    exit: PathBuf,
    launch: PathBuf,
    proc: PathBuf,
}

impl Job {
    fn new(tmp: &Path, proc: &Path, id: &str) -> Self {
        Self {
            exit: tmp.join(format!("job_{id}.exit")),
            launch: tmp.join(format!("job_{id}.launch")),
            proc: proc.to_owned(),
        }
    }

    fn state(&self) -> JobState {
        if let Some(ended) = self.ended() {
            return ended;
        }
        let Ok(launched) = self.launch.metadata() else { return JobState::NotFound };
        if self.runs() {
            return JobState::Running;
        }
        let age = launched.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if !self.launch.join("pid").exists() && age.is_none_or(|age| age < LAUNCH_TIME) {
            return JobState::Running;
        }
        // It may have ended between the two looks.
        self.ended().unwrap_or(JobState::Lost)
    }

    fn ended(&self) -> Option<JobState> {
        let text = read_start(&self.exit, FILE_LEN_MAX)?;
        let text = text.trim_ascii();
        if text.is_empty() {
            return None;
        }
        let code = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        Some(code.map_or(JobState::Lost, |exit_code| JobState::Completed { exit_code }))
    }

    /// As the client does it: the job's command line names its exit file.
    fn runs(&self) -> bool {
        let pid = read_start(&self.launch.join("pid"), FILE_LEN_MAX);
        let pid = pid.as_deref().and_then(|text| str::from_utf8(text.trim_ascii()).ok()?.parse::<u32>().ok());
        let command_line = pid.and_then(|pid| {
            let path = self.proc.join(pid.to_string()).join("cmdline");
            read_start(&path, COMMAND_LINE_LEN_MAX)
        });
        let name = self.exit.file_name().unwrap_or_default().as_encoded_bytes();
        command_line.is_some_and(|line| line.windows(name.len()).any(|window| window == name))
    }
}

/// The start of a file; `None` where there is none. Users can put anything there, so nothing is waited for.
fn read_start(path: &Path, len_max: u64) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    let mut text = Vec::new();
    file.take(len_max).read_to_end(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const ID: &str = "0123abcd";

    struct Guest(tempfile::TempDir);

    impl Guest {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn with(self, path: &str, text: &str) -> Self {
            let path = self.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
            self
        }

        fn state(&self) -> JobState {
            Job::new(self.0.path(), self.0.path(), ID).state()
        }
    }

    #[test]
    fn nothing_there_is_not_found() {
        assert_eq!(Guest::new().state(), JobState::NotFound);
    }

    #[test]
    fn an_exit_file_tells_the_code() {
        let guest = Guest::new().with("job_0123abcd.exit", "3\n");
        assert_eq!(guest.state(), JobState::Completed { exit_code: 3 });
        assert_eq!(Guest::new().with("job_0123abcd.exit", "what").state(), JobState::Lost);
    }

    #[test]
    fn a_job_runs_while_its_command_line_names_it() {
        let guest = Guest::new().with("job_0123abcd.launch/pid", "77").with("job_0123abcd.exit", "");
        assert_eq!(guest.state(), JobState::Lost);
        let guest = guest.with("77/cmdline", "sh\0-c\0... /tmp/job_0123abcd.exit");
        assert_eq!(guest.state(), JobState::Running);
        let guest = guest.with("77/cmdline", "another");
        assert_eq!(guest.state(), JobState::Lost);
    }

    #[test]
    fn a_job_just_launched_runs() {
        let guest = Guest::new();
        fs::create_dir(guest.0.path().join("job_0123abcd.launch")).unwrap();
        assert_eq!(guest.state(), JobState::Running);
    }

    #[test]
    fn ids_are_checked() {
        for bad in ["", "123", "../../..", "0123abcg"] {
            assert!(states(JobsRequest { job_ids: vec![bad.into()] }, Path::new("/proc")).is_err(), "{bad}");
        }
        assert!(states(JobsRequest { job_ids: vec![ID.into(); JOBS_MAX + 1] }, Path::new("/proc")).is_err());
    }
}
