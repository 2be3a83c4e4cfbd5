//! Certificates for servers of tests and figures.

use std::process::Command;

use crate::Directory;

/// Writes a certificate for `name` and 127.0.0.1 that signs itself, and its key: `certificate.pem` and `key.pem`.
pub fn make_certificate(directory: &Directory, name: &str) {
    let path = |file: &str| directory.path().join(file).display().to_string();
    let output = Command::new("openssl")
        .args([
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
        ])
        .args([
            "-subj",
            &format!("/CN={name}"),
            "-addext",
            &format!("subjectAltName=DNS:{name},IP:127.0.0.1"),
        ])
        .args(["-keyout", &path("key.pem"), "-out", &path("certificate.pem")])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
