use super::list::positive;
use super::{FieldError, Invalid, Timestamp, VolumeMount, limits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use utoipa::{IntoParams, ToSchema};
use warren_model::{MountPath, VolumeName, limits as spec_limits};

/// Body of `POST /sandbox/volumes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NewVolume {
    /// Unique among those of its owner.
    pub name: String,
    /// Team that owns it; the caller, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team_id: Option<String>,
}

/// A disk that outlives sandboxes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Volume {
    /// Never used twice.
    pub id: String,
    /// Unique among those of its owner.
    pub name: String,
    /// Who owns it, if no team does.
    pub user_id: Option<String>,
    /// Team that owns it.
    pub team_id: Option<String>,
    /// What was published last and is durable; new sandboxes start from it.
    pub head_checkpoint_id: Option<String>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Bytes that what was published last takes.
    #[serde(default)]
    pub occupied_bytes: u64,
    /// Bytes of all volumes of the owner; only in the answer for one volume.
    #[serde(default)]
    pub account_storage_used_bytes: Option<u64>,
    /// Limit for that, GiB; `null` is none.
    #[serde(default)]
    pub account_storage_limit_gb: Option<u64>,
}

/// Answer of `GET /sandbox/volumes`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VolumeList {
    /// The page, by name.
    pub volumes: Vec<Volume>,
    /// Volumes on all pages.
    pub total: u64,
    /// This page, from 1.
    pub page: u32,
    /// Volumes on a full page.
    pub per_page: u32,
    /// Whether another page follows.
    pub has_next: bool,
    /// Bytes of all volumes of the owner.
    pub storage_used_bytes: u64,
    /// Limit for that, GiB; `null` is none.
    pub storage_limit_gb: Option<u64>,
}

/// Query of `GET /sandbox/volumes`.
#[derive(Debug, Clone, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct VolumeListQuery {
    /// From 1.
    #[param(value_type = Option<u32>)]
    pub page: u32,
    /// At most [`limits::PER_PAGE_MAX`]; more is cut to it.
    #[param(value_type = Option<u32>)]
    pub per_page: u32,
    /// Of this team; absent is the caller's own.
    pub team_id: Option<String>,
}

/// Body of `POST /sandbox/{id}/volumes/{name}/publish`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PublishVolume {
    /// Also if another sandbox has published since this one started.
    #[serde(default)]
    pub force: bool,
}

impl VolumeListQuery {
    /// Reads the decoded pairs of a query string; unknown keys are ignored, empty values count as absent.
    pub fn from_pairs<K: AsRef<str>, V: AsRef<str>>(pairs: impl IntoIterator<Item = (K, V)>) -> Result<Self, Invalid> {
        let mut query = Self { page: 1, per_page: limits::PER_PAGE_DEFAULT, team_id: None };
        for (key, value) in pairs {
            match (key.as_ref(), value.as_ref()) {
                (_, "") => {}
                (key @ "page", value) => query.page = positive(key, value)?,
                (key @ "per_page", value) => query.per_page = positive(key, value)?.min(limits::PER_PAGE_MAX),
                ("team_id", value) => query.team_id = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(query)
    }
}

/// What the volumes of a create request mean. On what each lies is known once its name is looked up.
pub(super) fn mounts(asked: &[VolumeMount]) -> Result<Vec<warren_model::VolumeMount>, Invalid> {
    let at = |index, field, msg: String| FieldError::at(&["volumes"], index, field, msg);
    if asked.len() > spec_limits::VOLUMES_MAX {
        return Err(FieldError::body("volumes", format!("at most {}", spec_limits::VOLUMES_MAX)).into());
    }
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    let (mut mounts, mut errors) = (Vec::new(), Vec::new());
    for (index, mount) in asked.iter().enumerate() {
        let name = VolumeName::parse(&mount.name).map_err(|bad| errors.push(at(index, "name", bad.to_string())));
        let path = MountPath::parse(&mount.mount_path);
        let path = path.map_err(|bad| errors.push(at(index, "mount_path", bad.to_string())));
        let (Ok(name), Ok(path)) = (name, path) else { continue };
        if !names.insert(name.clone()) {
            errors.push(at(index, "name", "a volume can be in a sandbox once".to_owned()));
        }
        if !paths.insert(path.clone()) {
            errors.push(at(index, "mount_path", "another volume is mounted there".to_owned()));
        }
        mounts.push(warren_model::VolumeMount { name, path, read_only: mount.read_only, base: None });
    }
    if errors.is_empty() { Ok(mounts) } else { Err(Invalid { errors }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(name: &str, mount_path: &str) -> VolumeMount {
        VolumeMount { name: name.into(), mount_path: mount_path.into(), read_only: false }
    }

    #[test]
    fn each_fault_is_where_it_is() {
        let faults = |asked: &[VolumeMount]| {
            let errors = mounts(asked).unwrap_err().errors;
            errors.iter().map(|e| serde_json::to_value(&e.loc).unwrap().to_string()).collect::<Vec<_>>()
        };
        assert_eq!(
            faults(&[mount("a", "/a"), mount("", "/")]),
            [r#"["body","volumes",1,"name"]"#, r#"["body","volumes",1,"mount_path"]"#]
        );
        assert_eq!(faults(&[mount("a", "/a"), mount("a", "/b")]), [r#"["body","volumes",1,"name"]"#]);
        assert_eq!(faults(&[mount("a", "/a"), mount("b", "/a/")]), [r#"["body","volumes",1,"mount_path"]"#]);
        let many: Vec<_> = (0..9).map(|n| mount(&format!("v{n}"), &format!("/v{n}"))).collect();
        assert_eq!(faults(&many), [r#"["body","volumes"]"#]);
        assert_eq!(mounts(&many[..8]).unwrap().len(), 8);
    }

    #[test]
    fn the_query_of_the_client() {
        let query = VolumeListQuery::from_pairs([("page", "2"), ("per_page", "5000"), ("team_id", "c1")]).unwrap();
        assert_eq!(query, VolumeListQuery { page: 2, per_page: limits::PER_PAGE_MAX, team_id: Some("c1".into()) });
        assert!(VolumeListQuery::from_pairs([("page", "0")]).is_err());
    }
}
