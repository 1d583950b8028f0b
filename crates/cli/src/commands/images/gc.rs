use crate::args::GcArgs;
use crate::commands::{Context, now_ms};
use crate::failure::{Exit, Failure};
use crate::printer::{Table, View, human_size, short_duration};
use serde_json::{Value, json};
use warren_proto::http::{CollectImages, ImagesCollected};

/// What went, or would go.
struct CollectedView {
    answer: ImagesCollected,
    dry_run: bool,
    now_ms: u64,
}

impl View for CollectedView {
    fn table(&self) -> String {
        let answer = &self.answer;
        let mut table = Table::new(&["REFERENCE", "UNUSED", "FREES"]);
        for image in &answer.collected {
            let unused = short_duration(self.now_ms.saturating_sub(image.last_used_at.as_ms()) / 1000);
            table.row([image.references.join(", "), unused, human_size(image.bytes)]);
        }
        let freed: u64 = answer.collected.iter().map(|image| image.bytes).sum();
        let (done, left) = match self.dry_run {
            true => ("would be freed", answer.stored_bytes.saturating_sub(freed)),
            false => ("freed", answer.stored_bytes),
        };
        let rows = if answer.collected.is_empty() { String::new() } else { table.render() };
        let [freed, left, quota] = [freed, left, answer.quota_bytes].map(human_size);
        format!("{rows}{freed} {done}; {left} stored of at most {quota}\n")
    }

    fn json(&self) -> Value {
        json!(self.answer)
    }

    fn ids(&self) -> Vec<String> {
        self.answer.collected.iter().flat_map(|image| image.references.clone()).collect()
    }
}

/// Removes images that nobody uses and registries can give again.
pub(super) async fn run(context: &Context, args: &GcArgs) -> Result<Exit, Failure> {
    let keep_bytes = args.keep.map(|gib| gib.saturating_mul(1 << 30));
    let answer = context.api.collect_images(&CollectImages { dry_run: args.dry_run, keep_bytes }).await?;
    context.printer.show(&CollectedView { answer, dry_run: args.dry_run, now_ms: now_ms() })?;
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_went_is_listed_and_summed_up() {
        let answer: ImagesCollected = serde_json::from_value(json!({
            "storedBytes": 8 << 20, "quotaBytes": 1 << 30,
            "collected": [{"digest": "sha256:1", "references": ["a:1", "a:2"], "lastUsedAt": "1970-01-01T00:00:00Z", "bytes": 3 << 20}],
        }))
        .expect("an answer");
        let table = CollectedView { answer: answer.clone(), dry_run: true, now_ms: 7_200_000 }.table();
        assert!(table.contains("a:1, a:2"), "{table}");
        assert!(table.ends_with("3.0 MiB would be freed; 5.0 MiB stored of at most 1.0 GiB\n"), "{table}");
        let table = CollectedView { answer, dry_run: false, now_ms: 0 }.table();
        assert!(table.ends_with("3.0 MiB freed; 8.0 MiB stored of at most 1.0 GiB\n"), "{table}");
    }
}
