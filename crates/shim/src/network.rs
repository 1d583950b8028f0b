//! TEMPORARY
use warren_model::egress::EgressPolicy;
pub(crate) struct Network(#[allow(dead_code)] std::os::unix::net::UnixStream);
impl Network {
    pub(crate) fn start(s: std::os::unix::net::UnixStream, _p: &EgressPolicy) -> std::io::Result<Network> {
        Ok(Network(s))
    }
    pub(crate) fn set_policy(&self, _p: &EgressPolicy, _g: u64) {}
}
