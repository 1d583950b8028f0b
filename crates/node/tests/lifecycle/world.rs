//! A node over simulated shims in a folder of its own.

use std::path::Path;
use std::time::{Duration, Instant};
use warren_model::egress::EgressPolicy;
use warren_model::{ImageAccess, Login, SandboxId, SandboxSpec, Shape, Status};
use warren_node::{Guests, Node, NodeConfig, OpenError, SharedNode};
use warren_proto::node::{NodeApi, Observation};

/// Bound of every wait.
const WAIT: Duration = Duration::from_secs(30);
/// Name of the one image.
pub(crate) const IMAGE: &str = "tiny:1";

/// Opens a node on `dir`; what an earlier one left there is adopted.
pub(crate) async fn open(dir: &Path) -> SharedNode {
    let config = NodeConfig {
        data_dir: dir.to_owned(),
        gateway_url: None,
        accel: Default::default(),
        warren: std::env::current_exe().unwrap(),
        images: Default::default(),
        guests: Guests::Simulated,
    };
    let deadline = Instant::now() + WAIT;
    loop {
        match Node::open(config.clone()).await {
            // A shim that another test starts has a copy of every open file, locks included, until its program begins.
            Err(OpenError::Images(problem)) if problem.contains("in use") && Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            opened => return SharedNode(opened.unwrap()),
        }
    }
}

/// A node with the image [`IMAGE`].
pub(crate) async fn with_image(dir: &Path) -> SharedNode {
    let node = open(dir).await;
    let tar_path = dir.join("tiny.tar");
    let mut archive = tar::Builder::new(std::fs::File::create(&tar_path).unwrap());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    header.set_mode(0o644);
    archive.append_data(&mut header, "etc-issue", &b"hi"[..]).unwrap();
    archive.finish().unwrap();
    node.import_image(tar_path, IMAGE).await.unwrap();
    node
}

pub(crate) fn id(bits: u128) -> SandboxId {
    SandboxId::from_bits(bits)
}

pub(crate) fn spec() -> SandboxSpec {
    SandboxSpec {
        image_access: ImageAccess {
            owner: "user:1".into(),
            login: Some(Login { user: "ann".into(), password: "canary-5f1c".into() }),
        },
        name: "t".into(),
        image: IMAGE.into(),
        shape: Shape { vcpus: 1, memory_mib: 256 },
        disk_mib: 256,
        timeout: None,
        idle_timeout: None,
        idle_pauses: false,
        resumes_by_itself: false,
        uses_templates: true,
        snapshot: None,
        env: Default::default(),
        secrets: [("TOKEN".to_owned(), "canary-5f1c".to_owned())].into(),
        start_command: None,
        egress: EgressPolicy::Deny(Vec::new()),
        labels: Vec::new(),
        volumes: Vec::new(),
    }
}

/// Waits until a sandbox is as wanted.
pub(crate) async fn until(node: &SharedNode, id: &SandboxId, wanted: impl Fn(&Observation) -> bool) -> Observation {
    let wait = async {
        loop {
            if let Some(seen) = node.list().await.into_iter().find(|o| o.id == *id).filter(&wanted) {
                return seen;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WAIT, wait).await.expect("the sandbox never became as wanted")
}

/// A running sandbox.
pub(crate) async fn running(node: &SharedNode, bits: u128) -> SandboxId {
    let id = id(bits);
    node.create(id.clone(), spec()).await.unwrap();
    until(node, &id, |o| o.status == Status::Running).await;
    id
}

/// Pids of the shims of this folder.
pub(crate) fn shims(dir: &Path) -> Vec<i32> {
    let dir = dir.to_string_lossy().into_owned();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .filter(|pid: &i32| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            line.contains("shim") && line.contains(&dir)
        })
        .collect()
}

/// Nothing of any sandbox is left.
pub(crate) fn assert_clean(dir: &Path) {
    assert_eq!(std::fs::read_dir(dir.join("sandboxes")).unwrap().count(), 0, "folders are left");
    assert_eq!(shims(dir), Vec::<i32>::new(), "shims are left");
}

/// Kills a process for good.
pub(crate) fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}
