//! libsidestep_preload.so: the C library's socket functions, each a few lines over `posix`.
