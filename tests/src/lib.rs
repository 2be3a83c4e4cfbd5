//! Tests that cross rooms: the laboratory, the command.
