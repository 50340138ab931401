//! The ready window: host turns and a few URLs of each host.
