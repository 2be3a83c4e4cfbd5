//! What is done between two calls of the program: packets, news of the broker, and what is due.

mod news;
mod report;
mod turn;
