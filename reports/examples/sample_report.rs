//! Writes the reports of made-up runs into a folder, to look at them: `cargo run -p vlab-reports --example sample_report DIR`.

#[path = "../tests/report/sample.rs"]
mod sample;

use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let dir = std::env::args_os()
        .nth(1)
        .map(PathBuf::from)
        .ok_or_else(|| std::io::Error::other("usage: sample_report DIR"))?;
    for (result, history) in [sample::ha(), sample::sno_failed(), sample::fleet(2000, 2), sample::fleet(10_000, 26)] {
        let dir = dir.join(&result.run.scenario);
        std::fs::create_dir_all(&dir)?;
        vlab_reports::write_all(&dir, &result, &history, &vlab_reports::Redactor::default())?;
        print!("{}", vlab_reports::console::render(&result, vlab_reports::console::Style { width: 100, color: false }));
    }
    Ok(())
}
