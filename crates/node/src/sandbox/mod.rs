//! One sandbox as the node sees it: `machine` says what its observation becomes, `driver` waits and acts.

mod activity;
mod arriving;
mod change;
mod checkpoint;
mod disk;
mod driver;
mod folder;
mod machine;
mod start;
mod uids;
mod volumes;

pub(crate) use activity::{Activity, Operation};
pub(crate) use arriving::Source;
pub(crate) use change::Order;
pub(crate) use driver::{Adopted, Driver, Handle, Services, Waiters};
pub(crate) use folder::{Folder, Intent, Turn};
pub(crate) use machine::{Event, apply, pending};
