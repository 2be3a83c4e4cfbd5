//! How ports are opened.

/// How a port is opened. The default suits virtual ports and NICs alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DpdkOptions {
    /// Name of the TAP interface that is the kernel's side of the port.
    pub tap: String,
    /// Queues, at least one. With more than one the port must spread flows over them by itself (RSS), or its peer must.
    pub queues: u16,
    /// Frames of each queue.
    pub frames_per_queue: u32,
    /// Descriptors of each ring, as far as the port has so many.
    pub ring_entries: u16,
    /// Further arguments for EAL, such as `--no-huge` or `--file-prefix x`. Ours come first.
    pub eal_arguments: Vec<String>,
}

impl Default for DpdkOptions {
    fn default() -> DpdkOptions {
        DpdkOptions {
            tap: "dpdk0".to_owned(),
            queues: 1,
            frames_per_queue: 8192,
            ring_entries: 1024,
            eal_arguments: Vec::new(),
        }
    }
}
