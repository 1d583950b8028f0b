use crate::commands::Context;
use crate::commands::images::{Waits, build_text};
use crate::failure::Failure;
use crate::printer::Progress;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use warren_model::Status;
use warren_proto::http::{Sandbox, StatusSnapshot};

/// Time between two questions; the server holds its answer for a moment as well.
const ASK_EVERY: Duration = Duration::from_millis(300);
/// Longest wait for RUNNING, the pull and conversion of an image included.
const WAIT_MAX: Duration = Duration::from_secs(2 * 3600);
/// Questions in a row that may go wrong.
const FAULTS_MAX: u32 = 10;

/// Waits until a sandbox runs; an end before that is a failure with its reason.
pub(super) async fn until_running(context: &Context, sandbox: &Sandbox) -> Result<(), Failure> {
    let id = sandbox.id.as_str();
    let progress = Progress::new(&context.printer, "starting");
    let mut waits = Waits::default();
    let began = Instant::now();
    let mut faults = 0;
    while began.elapsed() < WAIT_MAX {
        match context.api.statuses(vec![id.to_owned()]).await {
            Ok(answer) => {
                faults = 0;
                let missing = || Failure::new("the server does not know it any more").about(id);
                let snapshot = answer.statuses.into_iter().next().ok_or_else(missing)?;
                if is_running(&snapshot)? {
                    return Ok(());
                }
                show(context, &progress, &mut waits, &snapshot).await;
            }
            Err(error) if faults < FAULTS_MAX && error.is_lost() => faults += 1,
            Err(error) => return Err(Failure::from(error).about(id)),
        }
        sleep(ASK_EVERY).await;
    }
    Err(Failure::new("it does not run yet").about(id).hint(format!("look again with `warren sandbox get {id}`")))
}

fn is_running(snapshot: &StatusSnapshot) -> Result<bool, Failure> {
    let status = Status::from(snapshot.status);
    if !status.is_terminal() {
        return Ok(status == Status::Running);
    }
    let id = &snapshot.sandbox_id;
    let reason = snapshot.error_message.clone().or(snapshot.error_type.clone());
    let reason = reason.unwrap_or_else(|| "it ended before it ran".to_owned());
    let failure = Failure::new(format!("{}: {reason}", status.as_str())).about(id);
    Err(match snapshot.error_type.as_deref() {
        Some("IMAGE_PULL_FAILED") => failure.hint("check the reference, or try it alone with `warren images pull REF`"),
        _ => failure.hint(format!("boot messages: `warren sandbox logs {id}`")),
    })
}

async fn show(context: &Context, progress: &Progress, waits: &mut Waits, snapshot: &StatusSnapshot) {
    let Some(build_id) = snapshot.pending_image_build_id.as_deref() else {
        return progress.step(
            &format!("{} is {}", snapshot.sandbox_id, Status::from(snapshot.status).as_str()),
            None,
            None,
        );
    };
    // Only for the picture: without it the wait goes on all the same.
    let builds = context.api.image_builds().await.map(|answer| answer.builds).unwrap_or_default();
    match builds.iter().find(|build| build.id == build_id) {
        Some(build) => {
            waits.tell(context, build);
            progress.step(&build_text(build), Some(build.bytes_done), build.bytes_total);
        }
        None => progress.step("making the image ready", None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(status: &str, error_type: Option<&str>) -> StatusSnapshot {
        serde_json::from_value(serde_json::json!({
            "sandbox_id": "s1", "status": status, "error_type": error_type, "error_message": "no such tag",
        }))
        .expect("a snapshot")
    }

    #[test]
    fn an_end_is_told_with_its_reason() {
        assert_eq!(is_running(&snapshot("PENDING", None)), Ok(false));
        assert_eq!(is_running(&snapshot("RUNNING", None)), Ok(true));
        let failure = is_running(&snapshot("ERROR", Some("IMAGE_PULL_FAILED"))).expect_err("ended");
        assert_eq!(failure.lines()[0], "error: s1: ERROR: no such tag");
        assert!(failure.lines()[1].contains("images pull"));
    }
}
