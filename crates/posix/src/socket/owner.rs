//! The owner of signals on readiness: `F_SETOWN`, `O_ASYNC`.

/// The owner.
#[derive(Debug, Default)]
pub(crate) struct Owner {
    /// A process, or a process group if negative; zero for none.
    pub(crate) process: i32,
    /// `O_ASYNC` and `O_APPEND`, as far as they are on.
    pub(crate) status: i32,
}
