//! Who has the privileges: claims, queues and moved connections for programs that have none.
#![forbid(unsafe_code)]
