//! What arrived out of order.
