use crate::printer::{Table, View, fields, short_digest, short_duration};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use warren_model::Status;
use warren_proto::http::{Sandbox, SandboxList};

/// One page of sandboxes, in the JSON that `prime sandbox list -o json` prints.
#[derive(Debug)]
pub(super) struct ListView {
    pub(super) list: SandboxList,
    /// For ages, milliseconds since 1970.
    pub(super) now_ms: u64,
}

/// One sandbox with everything, in the JSON that `prime sandbox get -o json` prints.
#[derive(Debug)]
pub(super) struct DetailView {
    pub(super) sandbox: Sandbox,
}

impl View for ListView {
    fn table(&self) -> String {
        let mut table =
            Table::new(&["ID", "NAME", "IMAGE", "DIGEST", "STATUS", "RESOURCES", "LABELS", "AGE", "EXPIRES"]);
        for sandbox in &self.list.sandboxes {
            let age = short_duration(self.now_ms.saturating_sub(sandbox.created_at.as_ms()) / 1000);
            let labels = if sandbox.labels.is_empty() { "-".to_owned() } else { sandbox.labels.join(", ") };
            let (id, name, image) = (sandbox.id.clone(), sandbox.name.clone(), sandbox.docker_image.clone());
            let status = status(sandbox).as_str().to_owned();
            let digest = sandbox.image_digest.as_deref().map_or("-".to_owned(), short_digest);
            table.row([
                id,
                name,
                image,
                digest,
                status,
                resources(sandbox),
                labels,
                age,
                expires(sandbox, self.now_ms),
            ]);
        }
        let mut text = table.render();
        if self.list.has_next {
            text.push_str(&format!("\n{} in all; next page: --page {}\n", self.list.total, self.list.page + 1));
        }
        text
    }

    fn json(&self) -> Value {
        let sandboxes: Vec<_> = self.list.sandboxes.iter().map(list_entry).collect();
        json!({
            "sandboxes": sandboxes,
            "total": self.list.total,
            "page": self.list.page,
            "per_page": self.list.per_page,
            "has_next": self.list.has_next,
        })
    }

    fn ids(&self) -> Vec<String> {
        self.list.sandboxes.iter().map(|sandbox| sandbox.id.clone()).collect()
    }
}

impl View for DetailView {
    fn table(&self) -> String {
        let shown = |value: Value| match value {
            Value::Null => None,
            Value::String(text) => Some(text),
            other => Some(other.to_string()),
        };
        fields(self.fields().into_iter().filter_map(|(name, value)| Some((name, shown(value)?))))
    }

    fn json(&self) -> Value {
        self.fields()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }

    fn ids(&self) -> Vec<String> {
        vec![self.sandbox.id.clone()]
    }
}

impl DetailView {
    /// Names and values, in the order in which people look for them.
    fn fields(&self) -> Vec<(&'static str, Value)> {
        let s = &self.sandbox;
        let mut fields = vec![
            ("id", json!(s.id)),
            ("name", json!(s.name)),
            ("type", json!("VM")),
            ("docker_image", json!(s.docker_image)),
            ("image_digest", json!(s.image_digest)),
            ("start_command", json!(s.start_command)),
            ("status", json!(s.status)),
            ("error_type", json!(s.error_type)),
            ("error_message", json!(s.error_message)),
            ("termination_reason", json!(s.termination_reason)),
            ("infra_fault", json!(s.infra_fault)),
            ("pending_image_build_id", json!(s.pending_image_build_id)),
            ("cpu_cores", json!(s.cpu_cores)),
            ("memory_gb", json!(s.memory_gb)),
            ("disk_size_gb", json!(s.disk_size_gb)),
            ("disk_mount_path", json!(s.disk_mount_path)),
            ("gpu_count", json!(s.gpu_count)),
            ("gpu_type", json!(s.gpu_type)),
            ("network_allowlist", json!(s.network_allowlist)),
            ("network_denylist", json!(s.network_denylist)),
            ("timeout_minutes", json!(s.timeout_minutes)),
            ("idle_timeout_minutes", json!(s.idle_timeout_minutes)),
            ("labels", json!(s.labels)),
            ("created_at", json!(s.created_at)),
            ("started_at", json!(s.started_at)),
            ("terminated_at", json!(s.terminated_at)),
            ("exit_code", json!(s.exit_code)),
            ("user_id", json!(s.user_id)),
            ("team_id", json!(s.team_id)),
            ("region", json!(s.region)),
            ("generation", json!(s.generation)),
            ("snapshot_id", json!(s.snapshot_id)),
            ("template_id", json!(s.template_id)),
            ("advanced_configs", json!(s.advanced_configs)),
        ];
        for (name, values) in [("environment_vars", &s.environment_vars), ("secrets", &s.secrets)] {
            fields.extend(values.as_ref().filter(|values| !values.is_empty()).map(|values| (name, masked(values))));
        }
        fields
    }
}

fn list_entry(sandbox: &Sandbox) -> Value {
    json!({
        "id": sandbox.id,
        "name": sandbox.name,
        "image": sandbox.docker_image,
        "image_digest": sandbox.image_digest,
        "status": sandbox.status,
        "resources": resources(sandbox),
        "region": sandbox.region,
        "labels": sandbox.labels,
        "created_at": sandbox.created_at,
        "timeout_minutes": sandbox.timeout_minutes,
        "expires_at": deadline_ms(sandbox).map(|ms| warren_proto::http::Timestamp::from_ms(ms).to_string()),
    })
}

/// Names are shown, values are not: a terminal's history and a log are no places for them.
fn masked(values: &BTreeMap<String, String>) -> Value {
    values.keys().map(|name| (name.clone(), Value::from("***"))).collect::<serde_json::Map<_, _>>().into()
}

fn status(sandbox: &Sandbox) -> Status {
    sandbox.status.into()
}

fn resources(sandbox: &Sandbox) -> String {
    format!("{} CPU, {} GB", sandbox.cpu_cores, sandbox.memory_gb)
}

/// The lifetime counts from the first RUNNING, also while it is paused.
fn deadline_ms(sandbox: &Sandbox) -> Option<u64> {
    let minutes = u64::try_from(sandbox.timeout_minutes).ok().filter(|&minutes| minutes > 0)?;
    let started = sandbox.started_at.filter(|_| matches!(status(sandbox), Status::Running | Status::Paused))?;
    Some(started.as_ms() + minutes * 60_000)
}

fn expires(sandbox: &Sandbox, now_ms: u64) -> String {
    match (deadline_ms(sandbox), sandbox.timeout_minutes) {
        _ if status(sandbox).is_terminal() => "-".to_owned(),
        (_, ..=0) => "never".to_owned(),
        (None, minutes) => format!("{minutes}m timeout"),
        (Some(deadline), _) if deadline <= now_ms => "expiring".to_owned(),
        (Some(deadline), _) => format!("{} left", short_duration((deadline - now_ms) / 1000)),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(in super::super) fn sandbox(status: &str) -> Sandbox {
        serde_json::from_value(json!({
            "id": "s1", "name": "a\u{1b}[2Jb", "dockerImage": "debian:12", "cpuCores": 1.0, "memoryGB": 0.5,
            "diskSizeGB": 5.0, "diskMountPath": "/", "gpuCount": 0, "vm": true, "status": status, "timeoutMinutes": 60,
            "labels": ["x", "y"], "createdAt": "1970-01-01T00:00:00Z", "updatedAt": "1970-01-01T00:00:00Z",
            "startedAt": "1970-01-01T00:01:00Z", "environmentVars": {"TOKEN": "clear"}, "infra_fault": false,
        }))
        .expect("a sandbox")
    }

    fn view(status: &str, timeout_minutes: i64) -> ListView {
        let sandbox = Sandbox { timeout_minutes, ..sandbox(status) };
        let list = SandboxList { sandboxes: vec![sandbox], total: 1, page: 1, per_page: 50, has_next: false };
        ListView { list, now_ms: 120_000 }
    }

    #[test]
    fn the_table_is_safe_and_tells_time_left() {
        let text = view("RUNNING", 60).table();
        assert!(text.contains("a\\u{1b}[2Jb") && text.contains("59m left") && text.contains("x, y"), "{text}");
        assert!(view("RUNNING", -1).table().contains("never"));
        assert!(view("PAUSED", 60).table().contains("59m left"));
        assert!(view("PENDING", 60).table().contains("60m timeout"));
        assert!(view("RUNNING", 1).table().contains("expiring"));
    }

    #[test]
    fn json_has_the_names_that_scripts_for_prime_read() {
        let value = view("RUNNING", 60).json();
        assert_eq!(value["sandboxes"][0]["image"], "debian:12");
        assert_eq!(value["sandboxes"][0]["expires_at"], "1970-01-01T01:01:00.000Z");
        assert_eq!(value["has_next"], false);
        let detail = DetailView { sandbox: sandbox("RUNNING") };
        assert_eq!(detail.json()["docker_image"], "debian:12");
        assert_eq!(detail.json()["environment_vars"], json!({"TOKEN": "***"}));
        assert!(!detail.table().contains("clear") && detail.table().contains("status:"), "{}", detail.table());
        assert_eq!(detail.ids(), ["s1"]);
    }
}
