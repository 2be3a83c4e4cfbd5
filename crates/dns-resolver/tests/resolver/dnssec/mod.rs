//! Validation, on zones that BIND's tools have signed (`specs/dns/dnssec/sign.sh`).

mod authority;
mod broken;
mod internet;
mod sound;
