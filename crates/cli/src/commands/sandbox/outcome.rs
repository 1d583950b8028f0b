use crate::client::GatewayError;
use crate::commands::Context;
use crate::failure::Failure;
use warren_model::Status;
use warren_proto::guest::command_session::Code;

/// The failure for a fault of the gateway. If the sandbox itself has ended, or is paused, that is what the user is told.
pub(super) async fn explain(context: &Context, id: &str, error: GatewayError) -> Failure {
    let vague = match &error {
        GatewayError::Session(error) => {
            matches!(error.code, Code::NotFound | Code::Unavailable | Code::DeadlineExceeded)
        }
        GatewayError::Cut { .. } => true,
        GatewayError::Api(api) => api.is_gone(),
        _ => false,
    };
    let plain = Failure::from(error).about(id);
    if !vague {
        return plain;
    }
    let Ok(ended) = context.api.error_context(id).await else { return plain };
    match ended.status.map(Status::from) {
        Some(Status::Paused) => Failure::new("it is PAUSED")
            .about(id)
            .hint(format!("let it go on with `warren sandbox resume {id}`, or make it with --auto-resume")),
        Some(status) if status.is_terminal() => {
            let reason = [ended.error_type, ended.error_message].into_iter().flatten().collect::<Vec<_>>().join(": ");
            let reason = if reason.is_empty() { "it was ended".to_owned() } else { reason };
            Failure::new(format!("{}: {reason}", status.as_str()))
                .about(id)
                .hint("make a new one with `warren sandbox create IMAGE`")
        }
        _ => plain,
    }
}
