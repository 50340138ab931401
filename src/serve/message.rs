//! What the API says, as messages of a broker: the same words, in JSON.
//!
//! A lease is an element of `urls` of a lease's answer, and a result what
//! `/v1/settle` takes: one of its `results`, a list of them, or its whole body.
//! The limits are those of that call. Nothing here touches the store.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::lease::count;
use super::wire::Capped;
use super::wire::queue::{LeasedUrl, SettleItem, Tokens};
use crate::metrics::{Metrics, TokenCall};
use crate::queue::{LeaseBatch, Leased, MAX_RESULTS, Settlement, TokenResult};

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
    /// What stands among them and is no result.
    pub poison: Option<Poison>,
}

/// What of a message is no result.
#[derive(Debug)]
pub struct Poison {
    /// How many; a message that cannot be read counts as one.
    pub results: u64,
    /// What is wrong with the first: a sentence for whoever sent it.
    pub why: String,
}

/// The body of `/v1/settle`, its results as they came.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    results: Capped<Value, MAX_RESULTS>,
}

impl Report {
    /// Reads a message; an error where nothing in it is a result. One that is wrong costs
    /// no other: who sent the list is not told, as a client of the API is, and could
    /// not send the others again.
    pub fn read(bytes: &[u8]) -> Result<Self, Poison> {
        let mut report = Self { tokens: Tokens::default(), settlements: Vec::new(), poison: None };
        let items = read_items(bytes).map_err(|why| Poison { results: 1, why })?;
        let count = items.len();
        for (index, item) in items.into_iter().enumerate() {
            match read_item(index, item, &mut report.tokens) {
                Ok(settlement) => report.settlements.extend(settlement),
                Err(why) => {
                    report.poison.get_or_insert(Poison { results: 0, why }).results += 1;
                }
            }
        }
        match report.poison {
            Some(all) if all.results == count as u64 => Err(all),
            _ => Ok(report),
        }
    }

    /// Counts as a settle of the API is counted; says how many results there were.
    pub fn settled(self, metrics: &Metrics, said: Vec<TokenResult>) -> u64 {
        let answer = self.tokens.answer(said);
        metrics.tokens(TokenCall::Settle, answer.results());
        answer.results().count() as u64
    }
}

/// The results of a message, each as it came.
fn read_items(bytes: &[u8]) -> Result<Vec<Value>, String> {
    let value: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    let body = match value {
        Value::Array(_) => json!({ "results": value }),
        Value::Object(ref one) if !one.contains_key("results") => json!({ "results": [value] }),
        other => other,
    };
    let body: Body = serde_json::from_value(body).map_err(|e| e.to_string())?;
    body.results.take("results").map_err(|wrong| wrong.detail().to_owned())
}

fn read_item(index: usize, item: Value, tokens: &mut Tokens) -> Result<Option<Settlement>, String> {
    let item: SettleItem =
        serde_json::from_value(item).map_err(|e| format!("results[{index}]: {e}"))?;
    item.settlement(index, tokens).map_err(|wrong| wrong.detail().to_owned())
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
    fn a_wrong_result_costs_none_of_the_others() {
        let one = format!("{{\"token\":\"{TOKEN}\",\"outcome\":\"changed\"}}");
        let wrong = "{\"token\":\"x\",\"outcome\":\"gone\",\"status\":0}";
        let list = format!("[{one},{wrong},{{\"token\":\"x\",\"more\":1}},7,{one}]");
        for text in [list.clone(), format!("{{\"results\":{list}}}")] {
            let report = Report::read(text.as_bytes()).expect(&text);
            assert_eq!(report.settlements.len(), 2);
            let poison = report.poison.as_ref().expect("three are none");
            assert_eq!(poison.results, 3);
            assert!(poison.why.starts_with("results[1].status is no HTTP status"), "{poison:?}");
            let said = vec![TokenResult::Ok; 2];
            assert_eq!(report.settled(&Metrics::new(), said), 2);
        }
        let poison = Report::read(format!("[{wrong},{wrong}]").as_bytes()).expect_err("none");
        assert_eq!(poison.results, 2);
        // Another field beside the list, or too long a list, is a mistake about all of it.
        let body = format!("{{\"results\":[{one}],\"more\":1}}");
        assert!(Report::read(body.as_bytes()).is_err());
        let many = format!("[{}{one}]", format!("{one},").repeat(MAX_RESULTS));
        let poison = Report::read(many.as_bytes()).expect_err("too many");
        assert!(poison.why.contains("at most 10,000"), "{poison:?}");
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
            assert!(told.why.contains(expected), "{text}: {told:?}");
            assert_eq!(told.results, 1, "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(Report::read(deep.as_bytes()).is_err());
    }
}
