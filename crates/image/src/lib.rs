//! Reference to verified layers to ext4 in a content-addressed store; leases, garbage collection.
