//! The one way to wait: for a condition, with a budget, remembering what was seen last.

use std::fmt;
use std::future::Future;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The budget is spent and the condition did not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeout {
    /// What was waited for.
    pub what: String,
    /// The budget.
    pub budget: Duration,
    /// How often was looked.
    pub attempts: u32,
    /// What the last look saw instead.
    pub last: Option<String>,
}

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, budget, attempts) = (&self.what, self.budget, self.attempts);
        write!(f, "{what}: not within {budget:?} (looked {attempts} times)")?;
        match &self.last {
            Some(last) => write!(f, "; last seen: {last}"),
            None => f.write_str("; nothing was seen"),
        }
    }
}

impl std::error::Error for Timeout {}

/// Why something that was started did not become ready.
#[derive(Debug, thiserror::Error)]
pub enum ReadyError {
    /// It ended while somebody waited for it.
    #[error("{end} before {waited}; the end of its log {log_file}:\n{log}")]
    Ended {
        /// Which program ended, and how.
        end: String,
        /// What it should have done.
        waited: String,
        /// Its log file.
        log_file: PathBuf,
        /// The last lines of it.
        log: String,
    },
    /// The budget is spent.
    #[error("{timeout}; the end of its log {log_file}:\n{log}")]
    TimedOut {
        /// What was waited for, how long, and what was seen.
        timeout: Timeout,
        /// Its log file.
        log_file: PathBuf,
        /// The last lines of it.
        log: String,
    },
}

/// Looks every `interval` until `check` answers `Ok(Some(value))`. `Ok(None)` is "not yet", `Err(text)` is "not yet, and
/// this is what there is instead". A single look never outlives the budget. What makes waiting pointless is a value
/// too: let `T` be a `Result`.
///
/// # Errors
/// [`Timeout`] with what was seen last.
pub async fn until<T, Check, Look>(
    what: &str,
    budget: Duration,
    interval: Duration,
    mut check: Check,
) -> Result<T, Timeout>
where
    Check: FnMut() -> Look,
    Look: Future<Output = Result<Option<T>, String>>,
{
    let end = tokio::time::Instant::now() + budget;
    let mut timeout = Timeout { what: what.to_owned(), budget, attempts: 0, last: None };
    loop {
        timeout.attempts += 1;
        match tokio::time::timeout_at(end, check()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => {}
            Ok(Err(seen)) => timeout.last = Some(seen),
            Err(_) => {
                timeout.last.get_or_insert_with(|| "no answer at all".to_owned());
                return Err(timeout);
            }
        }
        if tokio::time::Instant::now() + interval >= end {
            return Err(timeout);
        }
        tokio::time::sleep(interval).await;
    }
}

/// The same for places without an async runtime (supervisor, `Drop`): looks every 2 ms.
pub(crate) fn until_blocking(end: Instant, mut check: impl FnMut() -> bool) -> bool {
    loop {
        if check() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[tokio::test]
    async fn answers_as_soon_as_the_condition_holds() {
        let mut looks = 0;
        let found = until("three", 5000 * MS, MS, || {
            looks += 1;
            let now = looks;
            async move { if now == 3 { Ok(Some(now)) } else { Err(format!("{now}")) } }
        });
        assert_eq!(found.await, Ok(3));
        assert_eq!(looks, 3);
    }

    #[tokio::test]
    async fn the_last_value_seen_is_reported() {
        let mut looks = 0;
        let error = until::<(), _, _>("the host is known", 30 * MS, 5 * MS, || {
            looks += 1;
            let answer = if looks == 1 { Err("status insufficient".to_owned()) } else { Ok(None) };
            async move { answer }
        })
        .await
        .unwrap_err();
        assert_eq!(error.last.as_deref(), Some("status insufficient"));
        assert!(error.attempts >= 2);
        let text = error.to_string();
        assert!(text.starts_with("the host is known: not within 30ms (looked "), "{text}");
        assert!(text.ends_with("last seen: status insufficient"), "{text}");
    }

    #[tokio::test]
    async fn a_look_that_hangs_does_not_outlive_the_budget() {
        let started = Instant::now();
        let error = until::<(), _, _>("an answer", 40 * MS, MS, std::future::pending).await.unwrap_err();
        assert!(started.elapsed() < Duration::from_secs(5));
        assert_eq!(error.last.as_deref(), Some("no answer at all"));
    }
}
