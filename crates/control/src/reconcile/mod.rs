//! Brings what runs and what should run together.
//!
//! `absorb` says what an observation changes in a row, `plan` what is left to do for all rows and all of a node; both are pure.
//! `dispatch` does one thing on the node and writes down that it is done, `driver` waits and calls the others.

mod absorb;
mod changes;
#[cfg(test)]
mod convergence;
pub(crate) mod dispatch;
pub(crate) mod driver;
mod plan;
mod underway;

pub(crate) use absorb::delete as deleted;
pub(crate) use changes::{Changes, Waiter};
pub(crate) use underway::{Begun, Underway};
