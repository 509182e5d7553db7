//! The simulated assisted-service as the program of its container image: no command line, everything from the environment,
//! under the names that the real service has.

use std::process::ExitCode;

use vlab_service_server::program::run_under_real_environment;

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_max_level(tracing::level_filters::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    match Box::pin(run_under_real_environment()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("vlab-service: {problem}");
            ExitCode::FAILURE
        }
    }
}
