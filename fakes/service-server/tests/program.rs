//! The program of the container image, as it is started there: a setting that it cannot read ends it with the setting's name.

use std::process::Command;

use rstest::rstest;

#[rstest]
#[case(&[("HTTP_LISTEN_PORT", "high")], "vlab-service: HTTP_LISTEN_PORT: \"high\" is not a number")]
#[case(&[("HTTP_LISTEN_PORT", "70000")], "vlab-service: HTTP_LISTEN_PORT: not a port number")]
#[case(&[("HW_VALIDATOR_REQUIREMENTS", "{")], "vlab-service: settings in the environment: setting HW_VALIDATOR_REQUIREMENTS: ")]
#[case(
    &[("DB_HOST", "127.0.0.1"), ("DB_PORT", "1"), ("DB_NAME", "installer"), ("DB_USER", "a"), ("DB_PASS", "b")],
    "vlab-service: the database: "
)]
fn what_it_cannot_use_it_names(#[case] environment: &[(&str, &str)], #[case] says: &str) {
    let out = Command::new(env!("CARGO_BIN_EXE_vlab-service"))
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .expect("the program was built for this test");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.starts_with(says), "{said}");
}
