use crate::client::ApiError;
use crate::commands::Context;
use crate::printer::{Progress, visible};
use std::time::{Duration, Instant};
use warren_proto::http::{Image, ImageBuildState};

/// Time between two pictures of the progress.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Longest wait for an image, over all its questions.
const WAIT_MAX: Duration = Duration::from_secs(6 * 3600);

/// Waits for an image that `ask` asks for, and shows how far it is. A server that stops waiting is asked again: it then
/// joins the work that goes on.
pub(super) async fn watched<F>(context: &Context, reference: &str, ask: impl Fn() -> F) -> Result<Image, ApiError>
where
    F: Future<Output = Result<Image, ApiError>>,
{
    let progress = Progress::new(&context.printer, reference);
    let mut waits = Waits::default();
    let began = Instant::now();
    loop {
        let answer = ask();
        tokio::pin!(answer);
        let image = loop {
            tokio::select! {
                image = &mut answer => break image,
                () = tokio::time::sleep(LOOK_EVERY) => show(context, &progress, &mut waits, reference).await,
            }
        };
        match image {
            Err(error) if error.is_server_timeout() && began.elapsed() < WAIT_MAX => {}
            other => return other,
        }
    }
}

async fn show(context: &Context, progress: &Progress, waits: &mut Waits, reference: &str) {
    // Only for the picture: without it the wait goes on all the same.
    let builds = context.api.image_builds().await.map(|answer| answer.builds).unwrap_or_default();
    match builds.iter().find(|build| is_of(build, reference)) {
        Some(build) => {
            waits.tell(context, build);
            progress.step(&build_text(build), Some(build.bytes_done), build.bytes_total);
        }
        None => progress.step(reference, None, None),
    }
}

/// Says what a build waits for, once for each try, where no moving picture shows it.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    last: Option<String>,
}

impl Waits {
    /// Says it if it is new.
    pub(crate) fn tell(&mut self, context: &Context, build: &ImageBuildState) {
        let Some(waiting) = build.waiting.as_ref().filter(|_| !context.printer.draws()) else { return };
        let attempt = without_countdown(waiting);
        if self.last.as_ref() != Some(&attempt) {
            context.printer.note(&format!("{}: waits: {}", visible(&build.reference), visible(waiting)));
            self.last = Some(attempt);
        }
    }
}

/// The text without its numbers of seconds, which change all the time.
fn without_countdown(waiting: &str) -> String {
    waiting.split(", ").filter(|part| !part.starts_with("next try in ")).collect::<Vec<_>>().join(", ")
}

/// The server shows canonical references: `docker.io/library/debian:12` for `debian:12`.
fn is_of(build: &ImageBuildState, reference: &str) -> bool {
    let canonical = build.reference.as_str();
    [canonical, canonical.strip_suffix(":latest").unwrap_or(canonical)]
        .into_iter()
        .any(|name| name == reference || name.ends_with(&format!("/{reference}")))
}

/// One line on what is being done to an image, and what it waits for.
pub(crate) fn build_text(build: &ImageBuildState) -> String {
    let layers = match build.layers_total {
        Some(total) if build.layers_done < total => format!(", layer {} of {total}", build.layers_done + 1),
        Some(total) => format!(", {total} of {total} layers"),
        None => String::new(),
    };
    let waiting = build.waiting.as_ref().map_or(String::new(), |waiting| format!(": {waiting}"));
    format!("{} {}{layers}{waiting}", build.step, build.reference)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_references_are_found_again() {
        let build = |reference: &str| ImageBuildState {
            id: "b".into(),
            reference: reference.into(),
            step: "pulling".into(),
            bytes_done: 0,
            bytes_total: None,
            layers_done: 1,
            layers_total: Some(3),
            waiting: Some("rate limited by docker.io, next try in 12 s, attempt 3".into()),
        };
        let text = "pulling a:1, layer 2 of 3: rate limited by docker.io, next try in 12 s, attempt 3";
        assert_eq!(build_text(&build("a:1")), text);
        assert_eq!(
            without_countdown(build("a:1").waiting.as_deref().expect("waits")),
            "rate limited by docker.io, attempt 3"
        );
        assert!(is_of(&build("docker.io/library/debian:12"), "debian:12"));
        assert!(is_of(&build("docker.io/library/debian:latest"), "debian"));
        assert!(is_of(&build("a/b:1"), "a/b:1"));
        assert!(!is_of(&build("docker.io/library/mydebian:12"), "debian:12"));
    }
}
