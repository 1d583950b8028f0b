//! One sandbox as the node sees it: `machine` says what its observation becomes, `driver` waits and acts.

mod activity;
mod arriving;
mod disk;
mod driver;
mod folder;
mod machine;
mod uids;
mod volumes;

pub(crate) use activity::{Activity, Operation};
pub(crate) use driver::{Adopted, Driver, Handle, Jails, Services, Waiters};
pub(crate) use folder::{Folder, Intent};
pub(crate) use machine::{Event, apply, pending};
