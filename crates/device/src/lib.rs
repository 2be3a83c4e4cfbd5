//! The Device trait; memory pair, pcap replay and record, fault injector.
