//! Image references and the order in which they are resolved.
