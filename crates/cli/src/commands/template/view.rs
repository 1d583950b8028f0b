use crate::printer::{Table, View, fields, short_duration};
use serde_json::{Value, json};
use warren_proto::http::{StartCommand, Template};

/// Templates of somebody.
#[derive(Debug)]
pub(super) struct TemplatesView {
    pub(super) templates: Vec<Template>,
    /// For ages, milliseconds since 1970.
    pub(super) now_ms: u64,
}

/// One template with everything.
#[derive(Debug)]
pub(super) struct TemplateView {
    pub(super) template: Template,
}

impl View for TemplatesView {
    fn table(&self) -> String {
        let mut table = Table::new(&["ID", "NAME", "IMAGE", "START", "STATE", "RESOURCES", "USED", "AGE"]);
        let ago = |ms: u64| short_duration(self.now_ms.saturating_sub(ms) / 1000);
        for template in &self.templates {
            table.row([
                template.id.clone(),
                template.name.clone(),
                template.docker_image.clone(),
                template.start_command.as_ref().map_or("-".to_owned(), command),
                state(template),
                resources(template),
                ago(template.used_at.as_ms()),
                ago(template.created_at.as_ms()),
            ]);
        }
        table.render()
    }

    fn json(&self) -> Value {
        json!({ "templates": self.templates })
    }

    fn ids(&self) -> Vec<String> {
        self.templates.iter().map(|template| template.id.clone()).collect()
    }
}

impl View for TemplateView {
    fn table(&self) -> String {
        let t = &self.template;
        let env = t.environment_vars.as_ref().filter(|env| !env.is_empty());
        let pairs = [
            ("id", Some(t.id.clone())),
            ("name", Some(t.name.clone())),
            ("state", Some(state(t))),
            ("error", t.error.clone()),
            ("image", Some(t.docker_image.clone())),
            ("image_digest", t.image_digest.clone()),
            ("start", t.start_command.as_ref().map(command)),
            ("ready", t.ready.as_ref().map(command)),
            ("resources", Some(resources(t))),
            // Names alone, as for a sandbox.
            ("environment_vars", env.map(|env| env.keys().cloned().collect::<Vec<_>>().join(", "))),
            ("user_id", Some(t.user_id.clone())),
            ("team_id", t.team_id.clone()),
            ("created_at", Some(t.created_at.to_string())),
            ("used_at", Some(t.used_at.to_string())),
        ];
        fields(pairs.into_iter().filter_map(|(name, value)| Some((name, value?))))
    }

    fn json(&self) -> Value {
        json!(self.template)
    }

    fn ids(&self) -> Vec<String> {
        vec![self.template.id.clone()]
    }
}

fn state(template: &Template) -> String {
    template.state.as_str().to_uppercase()
}

fn resources(template: &Template) -> String {
    format!("{} CPU, {} GB, {} GB disk", template.cpu_cores, template.memory_gb, template.disk_size_gb)
}

/// As it would be typed.
fn command(command: &StartCommand) -> String {
    let words = || std::iter::once(&command.executable).chain(&command.args);
    shlex::try_join(words().map(String::as_str)).unwrap_or_else(|_| words().cloned().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn template() -> Template {
        serde_json::from_value(json!({
            "id": "t1", "name": "n", "state": "MAKING", "dockerImage": "debian:12", "imageDigest": null,
            "startCommand": {"executable": "sh", "args": ["-c", "sleep 1"]}, "ready": {"executable": "true", "args": []},
            "cpuCores": 1.0, "memoryGB": 0.5, "diskSizeGB": 5.0, "environmentVars": {"TOKEN": "clear"}, "error": null,
            "userId": "u1", "teamId": null, "createdAt": "1970-01-01T00:00:00Z", "usedAt": "1970-01-01T01:00:00Z",
        }))
        .expect("a template")
    }

    #[test]
    fn commands_are_shown_as_they_would_be_typed() {
        let table = TemplatesView { templates: vec![template()], now_ms: 7_200_000 }.table();
        assert!(table.contains("sh -c 'sleep 1'  MAKING  1 CPU, 0.5 GB, 5 GB disk  1h    2h\n"), "{table}");
    }

    #[test]
    fn one_is_shown_whole_without_values_of_its_environment() {
        let view = TemplateView { template: template() };
        let text = view.table();
        assert!(
            text.contains("ready:             true\n") && text.contains("TOKEN") && !text.contains("clear"),
            "{text}"
        );
        assert_eq!((view.ids(), &view.json()["startCommand"]["executable"]), (vec!["t1".to_owned()], &json!("sh")));
    }
}
