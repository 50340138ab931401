//! What the API says, as messages of a broker: the same words, in JSON.
//!
//! A lease is an element of `urls` of a lease's answer, and a result what
//! `/v1/settle` takes: one of its `results`, a list of them, or its whole body.
//! The limits are those of that call. Nothing here touches the store.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::lease::count;
use super::wire::queue::{LeasedUrl, SettleBody, Tokens};
use crate::metrics::{Metrics, TokenCall};
use crate::queue::{LeaseBatch, Leased, Settlement, TokenResult};

/// A lease as JSON, its times as `shown` tells them.
pub fn of_lease(leased: Leased, shown: impl Fn(Timestamp) -> Timestamp) -> Vec<u8> {
    let leased = leased.shown(shown);
    // Strings, numbers and times only: there is nothing that JSON cannot say.
    serde_json::to_vec(&LeasedUrl::from(leased)).unwrap_or_default()
}

/// Counts what was leased as a lease of the API is counted.
pub fn count_leased(metrics: &Metrics, crawl: &str, batch: &LeaseBatch) {
    count(metrics, crawl, batch);
}

/// Results that were read, to be settled.
#[derive(Debug)]
pub struct Report {
    tokens: Tokens,
    /// What is to be settled: all whose token is one.
    pub settlements: Vec<Settlement>,
}

impl Report {
    /// Reads a message; the error is a sentence for whoever sent it.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
        let body = match value {
            Value::Array(_) => json!({ "results": value }),
            Value::Object(ref one) if !one.contains_key("results") => json!({ "results": [value] }),
            other => other,
        };
        let body: SettleBody = serde_json::from_value(body).map_err(|e| e.to_string())?;
        let (tokens, settlements) = body.check().map_err(|wrong| wrong.detail().to_owned())?;
        Ok(Self { tokens, settlements })
    }

    /// Counts as a settle of the API is counted; says how many results there were.
    pub fn settled(self, metrics: &Metrics, said: Vec<TokenResult>) -> u64 {
        let answer = self.tokens.answer(said);
        metrics.tokens(TokenCall::Settle, answer.results());
        answer.results().count() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "00112233445566778899aabbccddeeff0000000000000007";

    #[test]
    fn a_result_a_list_and_a_whole_body_are_read_alike() {
        let one = format!("{{\"token\":\"{TOKEN}\",\"outcome\":\"changed\",\"status\":200}}");
        for (text, count) in [
            (one.clone(), 1),
            (format!(" [{one}, {one}]"), 2),
            (format!("{{\"results\":[{one}]}}"), 1),
            ("[]".to_owned(), 0),
            ("[{\"token\":\"made up\",\"outcome\":\"gone\"}]".to_owned(), 0),
        ] {
            let report = Report::read(text.as_bytes()).expect(&text);
            assert_eq!(report.settlements.len(), count, "{text}");
        }
    }

    #[test]
    fn what_is_no_result_is_told_in_the_words_of_the_api() {
        for (text, expected) in [
            ("", "EOF"),
            ("\u{0}", "expected value"),
            ("7", "invalid type"),
            ("{}", "missing field `token`"),
            ("{\"token\":\"x\"}", "results[0].outcome is missing"),
            ("{\"token\":\"x\",\"outcome\":\"fine\"}", "unknown variant"),
            ("[{\"token\":\"x\",\"outcome\":\"gone\",\"status\":1}]", "is no HTTP status"),
            ("{\"token\":\"x\",\"outcome\":\"gone\",\"more\":1}", "unknown field `more`"),
        ] {
            let told = Report::read(text.as_bytes()).expect_err(text);
            assert!(told.contains(expected), "{text}: {told}");
        }
        let deep = "[".repeat(100_000);
        assert!(Report::read(deep.as_bytes()).is_err());
    }
}
