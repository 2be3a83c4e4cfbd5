//! One loop per core: devices, responders, timers. Reads the clock.
