//! AF_XDP: umem, rings, the steering program and its loading.
