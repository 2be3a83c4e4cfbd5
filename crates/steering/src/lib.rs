//! Claims: which flows Sidestep takes from the kernel; Toeplitz receive-side scaling.
