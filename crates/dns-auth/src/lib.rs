//! From query to response: semantics on the tree, speed from precompiled answers.
