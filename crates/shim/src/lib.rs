//! One sandbox: owns its VMM, its network, its guest channel; serves one unix socket.
