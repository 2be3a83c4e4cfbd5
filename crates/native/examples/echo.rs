//! Sends back what comes, by TCP and by UDP.
//!
//! Usage: `cargo run --release --example echo -- --device IF --listen ADDR:PORT [--core N] [--spin-us N]`

mod support;

use engine::Echo;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = support::Options::from_command_line("echo");
    support::serve(&options, Some(Echo), Echo)
}
