//! Live views in the terminal: what `sidestep top` and `sidestep dns top` share.
//!
//! A [`View`] is pure: it takes in what a thread has gathered ([`Feed`]), keys, and an area to draw on. `terminal.rs` has the terminal.
//! The same drawing makes pictures for documents (`picture.rs`) and, in tests, text.

mod feed;
mod format;
mod keys;
mod picture;
mod terminal;

pub(crate) use feed::Feed;
pub(crate) use format::{clip, percent, rate};
pub(crate) use keys::Key;
pub(crate) use picture::{write_picture, write_text_picture};
pub(crate) use terminal::{Next, View, is_interactive, show};

#[cfg(test)]
pub(crate) use picture::text_of;
