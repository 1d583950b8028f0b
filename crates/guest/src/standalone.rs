//! The agent as an ordinary process on a host, for tests and development: commands and files without a VM.

use crate::agent::{Agent, runtime};
use crate::command::Defaults;
use crate::init::Guest;
use crate::report;
use crate::serve::serve;
use std::io;
use std::path::Path;
use std::rc::Rc;
use tokio::net::UnixListener;

/// Serves HTTP/2 on a unix socket until its process is ended. Commands get cgroups below the folder `cgroup`, where that can be
/// made.
pub fn run(socket: &Path, cgroup: &Path) -> io::Result<()> {
    // As the first process of a machine is by nature.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    tokio::task::LocalSet::new().block_on(&runtime()?, async {
        let agent = Agent::new(cgroup, Guest::none(), None)?;
        *agent.defaults.borrow_mut() = Some(Rc::new(Defaults { hostname: "localhost".into(), ..Defaults::default() }));
        agent.run_background();
        let listener = UnixListener::bind(socket)?;
        loop {
            let (stream, _) = listener.accept().await?;
            let agent = agent.clone();
            tokio::task::spawn_local(async move {
                if let Err(error) = serve(&agent, stream).await {
                    report!("connection: {error}");
                }
            });
        }
    })
}
