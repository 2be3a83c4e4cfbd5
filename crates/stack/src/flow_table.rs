//! From a four-tuple to a connection.
