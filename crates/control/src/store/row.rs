use super::StoreError;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use warren_model::egress::EgressPolicy;
use warren_model::{SandboxId, SnapshotId, Status};
use warren_proto::http::CreateSandbox;

/// What should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Intent {
    /// It should run until it ends by itself.
    Run,
    /// It was deleted: nothing of it should be left on a node.
    End,
}

/// How far the node is known to have followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// No node has accepted it yet.
    Queued,
    /// A node has accepted it.
    Placed,
    /// The node says that nothing of it is left; its record there is still kept for the data plane.
    Cleared,
    /// The node keeps nothing of it. Nothing is left to do.
    Gone,
}

/// One row of `sandboxes`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SandboxRow {
    pub(crate) id: SandboxId,
    pub(crate) user_id: String,
    pub(crate) team_id: Option<String>,
    /// As asked for, the values of its secrets replaced.
    pub(crate) request: CreateSandbox,
    /// What the node runs, where that is not the reference of the request.
    pub(crate) node_image: Option<String>,
    /// The secrets' sealed JSON.
    pub(crate) secrets: Option<String>,
    pub(crate) intent: Intent,
    pub(crate) placement: Placement,
    pub(crate) status: Status,
    pub(crate) image_build_id: Option<String>,
    pub(crate) image_digest: Option<String>,
    pub(crate) egress: EgressPolicy,
    /// 0 is the policy of the create call.
    pub(crate) egress_generation: u64,
    pub(crate) egress_applied: u64,
    pub(crate) error_type: Option<String>,
    pub(crate) error_message: Option<String>,
    pub(crate) termination_reason: Option<String>,
    pub(crate) infra_fault: bool,
    pub(crate) exit_code: Option<i32>,
    /// Last output, kept when it ended.
    pub(crate) logs: Option<String>,
    pub(crate) created_at_ms: u64,
    pub(crate) updated_at_ms: u64,
    pub(crate) started_at_ms: Option<u64>,
    pub(crate) ended_at_ms: Option<u64>,
    /// What it goes on from, instead of its image.
    pub(crate) snapshot_id: Option<SnapshotId>,
    /// The snapshot of the app template that it went on from.
    pub(crate) template_id: Option<SnapshotId>,
    /// How often it was put back to a snapshot.
    pub(crate) generation: u64,
    pub(crate) version: i64,
}

impl SandboxRow {
    /// A sandbox that was just asked for; `request` has no secret in it.
    pub(crate) fn asked(
        id: SandboxId,
        user_id: String,
        team_id: Option<String>,
        request: CreateSandbox,
        egress: EgressPolicy,
        now_ms: u64,
    ) -> Self {
        SandboxRow {
            id,
            user_id,
            team_id,
            request,
            node_image: None,
            secrets: None,
            intent: Intent::Run,
            placement: Placement::Queued,
            status: Status::Pending,
            image_build_id: None,
            image_digest: None,
            egress,
            egress_generation: 0,
            egress_applied: 0,
            error_type: None,
            error_message: None,
            termination_reason: None,
            infra_fault: false,
            exit_code: None,
            logs: None,
            created_at_ms: now_ms,
            updated_at_ms: now_ms,
            started_at_ms: None,
            ended_at_ms: None,
            snapshot_id: None,
            template_id: None,
            generation: 0,
            version: 1,
        }
    }

    /// Whether it should run and has not ended.
    pub(crate) fn is_live(&self) -> bool {
        self.intent == Intent::Run && !self.status.is_terminal()
    }
}

impl Intent {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Intent::Run => "run",
            Intent::End => "end",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Intent::Run, Intent::End].into_iter().find(|intent| intent.as_str() == word)
    }
}

impl Placement {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Placement::Queued => "queued",
            Placement::Placed => "placed",
            Placement::Cleared => "cleared",
            Placement::Gone => "gone",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        let all = [Placement::Queued, Placement::Placed, Placement::Cleared, Placement::Gone];
        all.into_iter().find(|placement| placement.as_str() == word)
    }
}

/// Milliseconds as the database holds them.
pub(super) fn to_db(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn from_db(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

/// Reads all columns of `sandboxes`.
pub(super) fn read(row: &SqliteRow) -> Result<SandboxRow, StoreError> {
    let id: String = row.try_get("id")?;
    let damaged = |column| StoreError::Damaged { table: "sandboxes", column, id: id.clone() };
    let text = |column| row.try_get::<String, _>(column);
    let number = |column| row.try_get::<i64, _>(column).map(from_db);
    let maybe_snapshot = |column| match row.try_get::<Option<String>, _>(column)? {
        Some(id) => SnapshotId::parse(&id).map(Some).map_err(|_| damaged(column)),
        None => Ok(None),
    };
    let maybe_number = |column| row.try_get::<Option<i64>, _>(column).map(|n| n.map(from_db));
    Ok(SandboxRow {
        user_id: text("user_id")?,
        team_id: row.try_get("team_id")?,
        request: serde_json::from_str(&text("request")?).map_err(|_| damaged("request"))?,
        node_image: row.try_get("node_image")?,
        secrets: row.try_get("secrets")?,
        intent: Intent::parse(&text("intent")?).ok_or_else(|| damaged("intent"))?,
        placement: Placement::parse(&text("placement")?).ok_or_else(|| damaged("placement"))?,
        status: Status::parse(&text("status")?).ok_or_else(|| damaged("status"))?,
        image_build_id: row.try_get("image_build_id")?,
        image_digest: row.try_get("image_digest")?,
        egress: serde_json::from_str(&text("egress")?).map_err(|_| damaged("egress"))?,
        egress_generation: number("egress_generation")?,
        egress_applied: number("egress_applied")?,
        error_type: row.try_get("error_type")?,
        error_message: row.try_get("error_message")?,
        termination_reason: row.try_get("termination_reason")?,
        infra_fault: row.try_get("infra_fault")?,
        exit_code: row.try_get::<Option<i64>, _>("exit_code")?.and_then(|code| i32::try_from(code).ok()),
        logs: row.try_get("logs")?,
        created_at_ms: number("created_at_ms")?,
        updated_at_ms: number("updated_at_ms")?,
        started_at_ms: maybe_number("started_at_ms")?,
        ended_at_ms: maybe_number("ended_at_ms")?,
        snapshot_id: maybe_snapshot("snapshot_id")?,
        template_id: maybe_snapshot("template_id")?,
        generation: number("generation")?,
        version: row.try_get("version")?,
        id: SandboxId::parse(&id).map_err(|_| damaged("id"))?,
    })
}

/// Reads many; a damaged row is an error for all, since a plan over half the truth would be wrong.
pub(super) fn read_all(rows: &[SqliteRow]) -> Result<Vec<SandboxRow>, StoreError> {
    rows.iter().map(read).collect()
}
