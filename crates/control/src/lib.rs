//! Public API, auth, placement, reconcile, store.
//!
//! Says what should run and for whom. What does run is the node's to say, reached by [`warren_proto::node::NodeApi`] alone.
//! Start with [`App::open`].
#![forbid(unsafe_code)]

mod api;
mod app;
mod auth;
mod bootstrap;
mod builds;
mod checkpoints;
mod clock;
mod config;
mod context;
mod credential;
mod images;
mod keyfile;
mod quota;
mod random;
mod reconcile;
mod seal;
mod snapshots;
mod store;
mod templates;

pub use api::{OverTls, limits, openapi};
pub use app::{App, OpenError};
pub use bootstrap::API_KEY_FILE;
pub use builds::Room as BuildRoom;
pub use config::Config;
