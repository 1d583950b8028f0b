//! What a create request means, or all that is wrong with it.

use super::volume::mounts;
use super::{CreateSandbox, FieldError, Invalid, StartCommand, limits};
use std::time::Duration;
use warren_model::reference::Reference;
use warren_model::{CheckpointId, SandboxSpec, Shape, limits as spec_limits};

/// Key of `advanced_configs`: what happens at the idle timeout, `terminate` or `pause`.
const IDLE_ACTION: &str = "idle_action";
/// Key of `advanced_configs`: whether a command lets a paused sandbox go on, `true` or `false`.
const AUTO_RESUME: &str = "auto_resume";
/// Key of `advanced_configs`: whether an app template may be used, `true` or `false`.
const TEMPLATE: &str = "template";

impl TryFrom<&CreateSandbox> for SandboxSpec {
    type Error = Invalid;

    /// All faults at once, so that a client mends them in one go.
    fn try_from(request: &CreateSandbox) -> Result<Self, Invalid> {
        let mut errors = Faults::default();
        let shape = errors.keep(Shape::from_request(request.cpu_cores, request.memory_gb));
        let disk_mib = errors.keep(disk_mib(request));
        let image = errors.keep(image(request));
        let timeout = errors.keep(timeout(request.timeout_minutes));
        let idle_timeout = errors.keep(idle_timeout(request));
        let start_command = errors.keep(request.start_command.as_ref().map(start_command).transpose());
        let volumes = errors.keep_all(mounts(request.volumes.as_deref().unwrap_or_default()));
        let egress = errors.keep_all(request.egress().to_policy(["network_allowlist", "network_denylist"]));
        let (idle_pauses, resumes_by_itself) = errors.keep(pausing(request)).unwrap_or_default();
        let uses_templates = errors.keep(flag(request, TEMPLATE, true)).unwrap_or_default();
        errors.extend(name(request));
        errors.extend(labels(&request.labels));
        errors.extend(environment(request));
        errors.extend(not_offered(request));
        if idle_pauses && request.volumes.as_ref().is_some_and(|volumes| !volumes.is_empty()) {
            let msg = "a sandbox with volumes cannot pause: its snapshot would not hold them";
            errors.extend([FieldError::body("volumes", msg)]);
        }
        let (
            Some(shape),
            Some(disk_mib),
            Some(image),
            Some(timeout),
            Some(idle_timeout),
            Some(start_command),
            Some(egress),
            Some(volumes),
            true,
        ) = (shape, disk_mib, image, timeout, idle_timeout, start_command, egress, volumes, errors.0.is_empty())
        else {
            return Err(Invalid { errors: errors.0 });
        };
        Ok(SandboxSpec {
            snapshot: None,
            idle_pauses,
            resumes_by_itself,
            uses_templates,
            name: request.name.clone(),
            image,
            // Known once it is clear whose it is.
            image_access: Default::default(),
            shape,
            disk_mib,
            timeout,
            idle_timeout,
            env: request.environment_vars.clone().unwrap_or_default(),
            secrets: request.secrets.clone().unwrap_or_default(),
            start_command,
            egress,
            labels: request.labels.clone(),
            volumes,
        })
    }
}

#[derive(Default)]
struct Faults(Vec<FieldError>);

impl Faults {
    fn keep<T, E: Into<FieldError>>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|e| self.0.push(e.into())).ok()
    }

    fn keep_all<T>(&mut self, result: Result<T, Invalid>) -> Option<T> {
        result.map_err(|e| self.0.extend(e.errors)).ok()
    }

    fn extend(&mut self, faults: impl IntoIterator<Item = FieldError>) {
        self.0.extend(faults);
    }
}

/// A checkpoint has its own size.
fn disk_mib(request: &CreateSandbox) -> Result<u64, warren_model::BadSpec> {
    match &request.checkpoint_id {
        Some(_) => Ok(0),
        None => SandboxSpec::disk_mib_from_request(request.disk_gb()),
    }
}

/// For a checkpoint, whoever knows what image it became puts that in its place.
fn image(request: &CreateSandbox) -> Result<String, FieldError> {
    if let Some(id) = &request.checkpoint_id {
        return match CheckpointId::parse(id) {
            Ok(_) => Ok(String::new()),
            Err(bad) => Err(FieldError::body("checkpoint_id", bad.to_string())),
        };
    }
    let field = "docker_image";
    let text = request.docker_image.as_deref().map(str::trim).unwrap_or_default();
    if text.is_empty() {
        return Err(FieldError::body(field, "is required"));
    }
    match Reference::parse(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(bad) => Err(FieldError::body(field, bad.to_string())),
    }
}

fn timeout(minutes: i64) -> Result<Option<Duration>, FieldError> {
    match minutes {
        ..=0 => Ok(None),
        m if m <= limits::TIMEOUT_MINUTES_MAX => Ok(Some(Duration::from_secs(m.unsigned_abs() * 60))),
        _ => Err(FieldError::body(
            "timeout_minutes",
            format!("at most {}, or -1 for unlimited", limits::TIMEOUT_MINUTES_MAX),
        )),
    }
}

fn idle_timeout(request: &CreateSandbox) -> Result<Option<Duration>, FieldError> {
    let field = "idle_timeout_minutes";
    let Some(minutes) = request.idle_timeout_minutes else { return Ok(None) };
    if !(1..=limits::TIMEOUT_MINUTES_MAX).contains(&minutes) {
        return Err(FieldError::body(field, format!("must be from 1 to {}", limits::TIMEOUT_MINUTES_MAX)));
    }
    if request.timeout_minutes > 0 && minutes > request.timeout_minutes {
        return Err(FieldError::body(field, "must not be more than timeout_minutes"));
    }
    Ok(Some(Duration::from_secs(minutes.unsigned_abs() * 60)))
}

/// Whether the sandbox pauses at its idle timeout, and whether a command lets a paused one go on: keys of `advanced_configs`, which
/// every client can send.
fn pausing(request: &CreateSandbox) -> Result<(bool, bool), FieldError> {
    let field = "advanced_configs";
    let given = |key: &str| request.advanced_configs.as_ref().and_then(|configs| configs.get(key));
    let pauses = match given(IDLE_ACTION).map(|value| value.as_str()) {
        None | Some(Some("terminate")) => false,
        Some(Some("pause")) if request.idle_timeout_minutes.is_some() => true,
        Some(Some("pause")) => {
            return Err(FieldError::body(field, format!("{IDLE_ACTION} pause needs idle_timeout_minutes")));
        }
        Some(_) => return Err(FieldError::body(field, format!("{IDLE_ACTION} must be \"terminate\" or \"pause\""))),
    };
    // Who has it paused without being asked wants it back without asking.
    Ok((pauses, flag(request, AUTO_RESUME, pauses)?))
}

/// A key of `advanced_configs` that is true or false.
fn flag(request: &CreateSandbox, key: &str, absent: bool) -> Result<bool, FieldError> {
    let given = request.advanced_configs.as_ref().and_then(|configs| configs.get(key));
    match given.map(|value| value.as_bool()) {
        None => Ok(absent),
        Some(Some(value)) => Ok(value),
        Some(None) => Err(FieldError::body("advanced_configs", format!("{key} must be true or false"))),
    }
}

fn start_command(command: &StartCommand) -> Result<warren_model::StartCommand, FieldError> {
    let refuse = |msg: String| Err(FieldError::body("start_command", msg));
    let words = || std::iter::once(&command.executable).chain(&command.args);
    if command.executable.is_empty() {
        return refuse("executable must not be empty".to_owned());
    }
    if words().any(|word| word.contains('\0')) {
        return refuse("must not contain NUL bytes".to_owned());
    }
    let bytes: usize = words().map(String::len).sum();
    if words().count() > limits::ARGV_MAX || bytes > limits::ARGV_BYTES_MAX {
        return refuse(format!("at most {} words and {} bytes", limits::ARGV_MAX, limits::ARGV_BYTES_MAX));
    }
    Ok(warren_model::StartCommand { executable: command.executable.clone(), args: command.args.clone() })
}

fn name(request: &CreateSandbox) -> Option<FieldError> {
    let max = spec_limits::NAME_LEN_MAX;
    let text = &request.name;
    let good = !text.trim().is_empty() && text.len() <= max && !text.chars().any(char::is_control);
    (!good).then(|| FieldError::body("name", format!("expected 1 to {max} bytes without control characters")))
}

/// Faults of a list of labels, also of one in a filter.
fn labels(labels: &[String]) -> Option<FieldError> {
    let (count_max, len_max) = (spec_limits::LABELS_MAX, spec_limits::LABEL_LEN_MAX);
    if labels.len() > count_max {
        return Some(FieldError::body("labels", format!("at most {count_max}")));
    }
    let good = |label: &String| !label.is_empty() && label.len() <= len_max && !label.chars().any(char::is_control);
    let at = labels.iter().position(|label| !good(label))?;
    Some(FieldError::at(&["labels"], at, "", format!("expected 1 to {len_max} bytes without control characters")))
}

fn environment(request: &CreateSandbox) -> Vec<FieldError> {
    let fields = [("environment_vars", &request.environment_vars), ("secrets", &request.secrets)];
    let pairs = || fields.iter().flat_map(|(field, map)| map.iter().flatten().map(move |(k, v)| (*field, k, v)));
    let mut faults = Vec::new();
    let bytes: usize = pairs().map(|(_, k, v)| k.len() + v.len()).sum();
    if pairs().count() > spec_limits::ENV_MAX || bytes > spec_limits::ENV_BYTES_MAX {
        let msg = format!(
            "with secrets, at most {} variables and {} bytes",
            spec_limits::ENV_MAX,
            spec_limits::ENV_BYTES_MAX
        );
        faults.push(FieldError::body("environment_vars", msg));
    }
    for (field, key, value) in pairs() {
        if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
            // Neither name nor value: a malformed name may be a value by mistake.
            let msg = "a variable's name must not be empty or contain =, and neither name nor value may contain NUL";
            faults.push(FieldError::body(field, msg));
            break;
        }
    }
    faults
}

fn not_offered(request: &CreateSandbox) -> Vec<FieldError> {
    let mut faults = Vec::new();
    let mut refuse = |field: &str, msg: &str| faults.push(FieldError::body(field, msg));
    if request.gpu_count > 0 || request.gpu_type.is_some() {
        refuse("gpu_count", "this server has no GPUs: must be 0");
    }
    if request.idempotency_key.as_ref().is_some_and(|k| k.is_empty() || k.len() > limits::IDEMPOTENCY_KEY_LEN_MAX) {
        refuse("idempotency_key", "must be 1 to 256 bytes");
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use warren_model::egress::EgressPolicy;

    fn parse(json: serde_json::Value) -> Result<SandboxSpec, Invalid> {
        SandboxSpec::try_from(&serde_json::from_value::<CreateSandbox>(json).unwrap())
    }

    #[test]
    fn the_captured_body_of_the_cli() {
        let spec = parse(serde_json::json!({
            "name": "vm-python-lg72", "docker_image": "python:3.11-slim", "arch": "amd64", "cpu_cores": 1.0,
            "memory_gb": 1.0, "disk_size_gb": 5.0, "gpu_count": 0, "timeout_minutes": 60, "labels": [], "vm": true,
            "idempotency_key": "829e2bff9b1a4bbcb80d39bfd89d7561", "some_future_field": {"a": 1}
        }))
        .unwrap();
        assert_eq!(spec.shape, Shape { vcpus: 1, memory_mib: 1024 });
        assert_eq!(spec.timeout, Some(Duration::from_secs(3600)));
        assert_eq!(spec.egress, EgressPolicy::Deny(vec![]));
    }

    #[test]
    fn a_checkpoint_stands_for_image_and_disk() {
        let spec = parse(serde_json::json!({"name": "a", "checkpoint_id": "k1"})).unwrap();
        assert_eq!((spec.image.as_str(), spec.disk_mib), ("", 0));
        assert!(parse(serde_json::json!({"name": "a", "checkpoint_id": "../x"})).is_err());
    }

    #[test]
    fn zero_and_less_is_unlimited_and_idle_still_works() {
        for minutes in [-1, 0] {
            let spec = parse(serde_json::json!({
                "name": "a", "docker_image": "b", "timeout_minutes": minutes, "idle_timeout_minutes": 90
            }))
            .unwrap();
            assert_eq!((spec.timeout, spec.idle_timeout), (None, Some(Duration::from_secs(5400))));
        }
    }

    #[test]
    fn all_faults_are_named_at_once_and_no_value_is() {
        let invalid = parse(serde_json::json!({
            "name": "", "cpu_cores": 0, "memory_gb": 0.1, "disk_size_gb": -1, "gpu_count": 1,
            "timeout_minutes": 10, "idle_timeout_minutes": 11, "labels": [""], "secrets": {"A=hunter2": "hunter3"},
            "network_allowlist": [], "network_denylist": [], "start_command": {"executable": ""}
        }))
        .unwrap_err();
        // Of vCPUs and memory the first is named.
        assert_eq!(invalid.errors.len(), 10, "{invalid}");
        assert!(!serde_json::to_string(&invalid.errors).unwrap().contains("hunter"));
    }

    #[test]
    fn pausing_is_asked_for_by_advanced_configs() {
        let with = |idle: Option<i64>, configs: serde_json::Value| {
            let body = serde_json::json!({"name": "a", "docker_image": "b", "idle_timeout_minutes": idle, "advanced_configs": configs});
            parse(body).map(|spec| (spec.idle_pauses, spec.resumes_by_itself))
        };
        use serde_json::json;
        assert_eq!(with(None, json!({"other": 1})), Ok((false, false)));
        assert_eq!(with(Some(5), json!({"idle_action": "pause"})), Ok((true, true)));
        assert_eq!(with(Some(5), json!({"idle_action": "pause", "auto_resume": false})), Ok((true, false)));
        assert_eq!(with(None, json!({"auto_resume": true})), Ok((false, true)));
        for bad in [json!({"idle_action": "pause"}), json!({"idle_action": 1}), json!({"auto_resume": "yes"})] {
            assert!(with(None, bad).is_err());
        }
    }

    #[test]
    fn an_empty_allowlist_is_not_an_absent_one() {
        let with = |key: &str| parse(serde_json::json!({"name": "a", "docker_image": "b", key: []})).unwrap().egress;
        assert_eq!(with("network_allowlist"), EgressPolicy::Allow(vec![]));
        assert_eq!(with("network_denylist"), EgressPolicy::Deny(vec![]));
    }
}
