//! `sidestep dns audit`: each probe finds its fault at a resolver that has it, and nothing bad at one that has none; and the command itself,
//! against resolvers as they are packaged.

mod command;
mod encrypted;
mod faults;
mod packaged;
mod simulated;
