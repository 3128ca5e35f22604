//! Approvals that another process decides about.

use super::*;
use crate::store::{
    approvals::{Approval, Parked, Recorded, Status, Verdict},
    sqlite::Decider,
};

fn parked() -> (Parked, Approval) {
    let parked = Parked {
        id: "par_1".to_owned(),
        conversation: "c".to_owned(),
        request_id: "r".to_owned(),
        provider: "p".to_owned(),
        model: "m".to_owned(),
        streamed: false,
        answer: b"{}".to_vec(),
        expires_at_ms: NOON_MS + 60_000,
    };
    let call = Approval {
        id: "apr_1".to_owned(),
        parked: parked.id.clone(),
        request_id: "r".to_owned(),
        key: "k".into(),
        tenant: "t".into(),
        run: None,
        policy: "p@1".into(),
        tool: "pay".to_owned(),
        digest: "d".to_owned(),
        rule: "tools".to_owned(),
        arguments: Some("{}".to_owned()),
        status: Status::Pending,
        created_at_ms: NOON_MS,
        expires_at_ms: NOON_MS + 60_000,
        decision: None,
    };
    (parked, call)
}

async fn kinds(place: &Place) -> Vec<String> {
    let mut reader = Reader::open(&place.file()).await.unwrap();
    let lines = reader.lines_after(0, 100).await.unwrap();
    let kind = |body: &str| {
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        body["kind"].as_str().unwrap().to_owned()
    };
    lines.iter().map(|line| kind(&line.body)).collect()
}

/// The delivery may come before the decision was looked for.
#[tokio::test]
async fn a_decision_is_in_the_ledger_before_it_is_used() {
    let place = Place::new();
    let books = place.books().await;
    let (parked, call) = parked();
    books.park(parked, vec![call]).await.unwrap();
    books.flushed().await.unwrap();
    let verdict = Verdict {
        approval: "apr_1".to_owned(),
        status: Status::Approved,
        by: "dana".to_owned(),
        reason: String::new(),
        now_ms: NOON_MS,
    };
    let mut decider = Decider::open(&place.file()).await.unwrap();
    let recorded = decider.decide(&verdict).await.unwrap();
    assert!(matches!(recorded, Recorded::Done(_)), "{recorded:?}");
    assert!(books.claim("par_1").await.unwrap());
    books.close().await;
    let decided = ["approval_opened", "approval_decided", "approval_used"];
    assert_eq!(kinds(&place).await, decided);
}
