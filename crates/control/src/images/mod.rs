//! Images that people and teams own: whose a tag is, what a reference leads to, what may be changed.

mod destination;
mod owner;
mod pin;
mod resolve;
mod update;

pub(crate) use destination::{checked, of_source};
pub(crate) use owner::Owner;
pub(crate) use pin::{build_name, build_of, is_reserved, pin_name};
pub(crate) use resolve::{Place, find, readable, resolve};
pub(crate) use update::{Change, Refusal, Standing, decide};
