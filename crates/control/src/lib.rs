//! Public API, auth, placement, reconcile, store.
