//! Zone files, the zone tree, immutable versions.
