use super::Printer;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::time::Duration;

/// Nothing is drawn for work that is over sooner.
const QUIET_FOR: Duration = Duration::from_secs(1);
/// Time between two pictures of a spinner.
const TICK: Duration = Duration::from_millis(100);

/// A line on stderr for work whose steps are seen from outside. Hidden where nobody watches; gone when dropped.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    draws: bool,
    since: std::time::Instant,
}

impl Progress {
    /// Begins with a spinner.
    pub(crate) fn new(printer: &Printer, text: &str) -> Self {
        let bar = ProgressBar::hidden();
        bar.set_message(text.to_owned());
        Self { bar, draws: printer.draws(), since: std::time::Instant::now() }
    }

    /// Waits for one thing, and says so once that takes long.
    pub(crate) async fn during<T>(printer: &Printer, text: &str, work: impl Future<Output = T>) -> T {
        let progress = Self::new(printer, text);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = tokio::time::sleep(QUIET_FOR) => progress.step(text, None, None),
            }
        }
    }

    /// Says what is being done, and how far it is if that is known (bytes).
    pub(crate) fn step(&self, text: &str, done: Option<u64>, total: Option<u64>) {
        self.appear();
        self.bar.set_message(super::visible(text).into_owned());
        match (done, total) {
            (Some(done), Some(total)) if total > 0 => {
                self.bar.set_style(bar_style());
                self.bar.set_length(total);
                self.bar.set_position(done.min(total));
            }
            (Some(done), _) if done > 0 => {
                self.bar.set_style(counter_style());
                self.bar.set_position(done);
            }
            _ => self.bar.set_style(spinner_style()),
        }
    }

    fn appear(&self) {
        if self.draws && self.bar.is_hidden() && self.since.elapsed() >= QUIET_FOR {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
            self.bar.enable_steady_tick(TICK);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A bar for bytes that pass through this process. Cheap to clone; gone when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct Transfer {
    bar: ProgressBar,
}

impl Transfer {
    /// Begins at zero.
    pub(crate) fn new(printer: &Printer, text: &str, total: Option<u64>) -> Self {
        let bar = if printer.draws() { ProgressBar::no_length() } else { ProgressBar::hidden() };
        if let Some(total) = total {
            bar.set_length(total);
            bar.set_style(bar_style());
        } else {
            bar.set_style(counter_style());
        }
        bar.set_message(super::visible(text).into_owned());
        Self { bar }
    }

    /// Counts bytes.
    pub(crate) fn add(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// Takes the line away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn spinner_style() -> ProgressStyle {
    style("{spinner} {msg}  {elapsed}")
}

fn counter_style() -> ProgressStyle {
    style("{spinner} {msg}  {binary_bytes}  {elapsed}")
}

fn bar_style() -> ProgressStyle {
    style("{spinner} {msg}  {bar:30} {binary_bytes}/{binary_total_bytes}  {binary_bytes_per_sec}").progress_chars("=> ")
}
