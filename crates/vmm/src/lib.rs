//! One QEMU process: spec to argv, spawn, QMP, pause, snapshot, restore, reap.
