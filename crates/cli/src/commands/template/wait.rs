use crate::commands::Context;
use crate::failure::Failure;
use crate::printer::Progress;
use std::time::{Duration, Instant};
use tokio::time::sleep;
use warren_proto::http::{Template, TemplateState};

/// Time between two questions.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// Longest wait, the pull of its image included.
const WAIT_MAX: Duration = Duration::from_secs(2 * 3600);
/// Questions in a row that may go wrong.
const FAULTS_MAX: u32 = 10;

/// Waits until a template is ready; one that could not be made is a failure with its reason.
pub(super) async fn until_ready(context: &Context, mut template: Template) -> Result<Template, Failure> {
    let id = template.id.clone();
    let progress = Progress::new(&context.printer, &id);
    let began = Instant::now();
    let mut faults = 0;
    while began.elapsed() < WAIT_MAX {
        match template.state {
            TemplateState::Making => progress.step(&format!("making template {id}"), None, None),
            TemplateState::Failed => return Err(failed(&template)),
            _ => return Ok(template),
        }
        sleep(ASK_EVERY).await;
        match context.api.template(&id).await {
            Ok(now) => (template, faults) = (now, 0),
            Err(error) if faults < FAULTS_MAX && error.is_lost() => faults += 1,
            Err(error) => return Err(Failure::from(error).about(&id)),
        }
    }
    Err(Failure::new("it is not ready yet").about(&id).hint(format!("look again with `warren template get {id}`")))
}

fn failed(template: &Template) -> Failure {
    let id = &template.id;
    let reason = template.error.clone().unwrap_or_else(|| "it could not be made".to_owned());
    Failure::new(format!("FAILED: {reason}")).about(id).hint(format!(
        "mend the cause and `warren template rebuild {id} --wait`, or `warren template delete {id}` and make another"
    ))
}
