//! One sandbox's network in user space: frames in, sockets out; NAT, DNS, policy.
