use std::io::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// What an operator wants to know when the server is ready.
pub(super) struct Greeting<'a> {
    pub(super) address: SocketAddr,
    pub(super) tls: bool,
    pub(super) data_dir: &'a Path,
    pub(super) accel: &'a warren_node::AccelVerdict,
}

/// Prints it on stdout. A closed stdout is no reason to end.
pub(super) fn print(greeting: &Greeting<'_>) {
    let _ = write!(std::io::stdout(), "{}", text(greeting));
}

fn text(greeting: &Greeting<'_>) -> String {
    let scheme = if greeting.tls { "https" } else { "http" };
    let (address, data_dir) = (greeting.address, greeting.data_dir.display());
    let host = match address.ip() {
        ip if ip.is_unspecified() => format!("localhost:{}", address.port()),
        _ => address.to_string(),
    };
    let accel = format!("{:?}", greeting.accel.accel).to_lowercase();
    let key = greeting.data_dir.join(warren_control::API_KEY_FILE);
    let key = key.display();
    format!(
        "warren listens on {scheme}://{address}\n  \
         accelerator     {accel} ({})\n  \
         data directory  {data_dir}\n  \
         API key         {key}\n\n\
         Point the prime CLI and SDK at it:\n  \
         export PRIME_API_BASE_URL={scheme}://{host} PRIME_API_KEY=$(cat {key})\n",
        greeting.accel.why
    )
}
