//! Polls are answered before their moments are stored, and are stored all the same.

use uuid::Uuid;

use super::*;

/// A poll of that host.
pub(super) fn beat(host: u128, checked_in_at: Timestamp, timestamp: Option<i64>) -> Write {
    Write::Heartbeat { infra_env_id: Uuid::nil(), host_id: Uuid::from_u128(host), checked_in_at, timestamp }
}

#[tokio::test]
async fn a_poll_is_stored_although_nobody_asks_anything_else() {
    let store = Moody::default();
    let service = Running::start(store.clone(), NotesConfig::default(), Limits::default()).await;
    assert_eq!(service.ask("POST", "/beat", "").await.status, 204);
    until("the poll is stored", async || store.commits.load(Ordering::SeqCst) == 1).await;
    service.stop().await;
}

#[tokio::test]
async fn a_stop_stores_the_polls_that_were_answered() {
    let store = Moody::default();
    let service = Running::start(store.clone(), NotesConfig::default(), Limits::default()).await;
    assert_eq!(service.ask("POST", "/beat", "").await.status, 204);
    service.stop().await;
    assert_eq!(store.commits.load(Ordering::SeqCst), 1, "at the stop, or before it");
}

/// A store that is lost is noticed by polls alone, too.
#[tokio::test]
async fn polls_notice_that_the_store_is_lost() {
    let store = Moody::default();
    let service = Running::start(store.clone(), NotesConfig::default(), Limits::default()).await;
    store.lose_before.store(true, Ordering::SeqCst);
    assert_eq!(service.ask("POST", "/beat", "").await.status, 204, "nobody knows yet");
    until("the store was asked", async || store.commits.load(Ordering::SeqCst) == 1).await;
    until("it is back", async || service.ask("POST", "/notes/a", "x").await.status == 201).await;
    assert_eq!(store.commits.load(Ordering::SeqCst), 2, "what was lost with it is not stored later");
    service.stop().await;
}
