//! The hooks, family by family: they turn pointers into types, call `posix`, and write results back through pointers.
//!
//! All functions here are unsafe for one reason: a C caller gives the arguments. They are as the function's manual page says,
//! and that is what each `SAFETY` comment means by "as the caller says".

pub(crate) mod aio;
pub(crate) mod cancel;
pub(crate) mod confine;
pub(crate) mod descriptor;
pub(crate) mod epoll;
pub(crate) mod exec;
pub(crate) mod fork;
pub(crate) mod option;
pub(crate) mod poll;
pub(crate) mod receive;
pub(crate) mod rights;
pub(crate) mod select;
pub(crate) mod send;
pub(crate) mod signal;
pub(crate) mod socket;
pub(crate) mod stdio;
pub(crate) mod system_call;

use crate::asked::Verdict;

/// `verdict` with another value.
fn map<T, U>(verdict: Verdict<T>, change: impl FnOnce(T) -> U) -> Verdict<U> {
    match verdict {
        Verdict::Kernel => Verdict::Kernel,
        Verdict::Done(result) => Verdict::Done(result.map(change)),
    }
}
