//! The API's description of itself is true: every route is in it, every answer
//! is as it says and holds no field that it does not know.

use std::collections::BTreeSet;

use super::fetchers::until;
use super::*;
use crate::support::daemon::sitemap;
use crate::support::{Origin, Reply};

const PAGE: &str = r#"<url><loc>BASE/a</loc><lastmod>2026-11-20</lastmod><changefreq>daily</changefreq>
<image:image><image:loc>BASE/i.png</image:loc><image:title>t</image:title></image:image>
<video:video><video:thumbnail_loc>BASE/t.png</video:thumbnail_loc><video:title>t</video:title>
<video:description>d</video:description><video:content_loc>BASE/v.mp4</video:content_loc>
<video:rating>4.2</video:rating><video:restriction relationship="allow">IE GB</video:restriction>
<video:price currency="EUR">1.99</video:price><video:uploader>u</video:uploader></video:video>
<news:news><news:publication><news:name>N</news:name><news:language>en</news:language></news:publication>
<news:publication_date>2026-11-20</news:publication_date><news:title>T</news:title></news:news>
<xhtml:link rel="alternate" hreflang="de" href="BASE/de"/></url><url><loc>/relative</loc></url>"#;

/// A daemon that has something to tell in each of its answers.
async fn well_fed() -> (Daemon, Origin) {
    let origin = Origin::start().await;
    let base = origin.base();
    let head = "<urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\" \
                xmlns:image=\"http://www.google.com/schemas/sitemap-image/1.1\" \
                xmlns:video=\"http://www.google.com/schemas/sitemap-video/1.1\" \
                xmlns:news=\"http://www.google.com/schemas/sitemap-news/0.9\" \
                xmlns:xhtml=\"http://www.w3.org/1999/xhtml\">";
    let rest = sitemap(&base, &[("/b", ""), ("/c", ""), ("/d", "2026")]);
    let rest = rest.split_once('>').unwrap().1.split_once('>').unwrap().1;
    origin.set("/sitemap.xml", Reply::xml(format!("{head}{}{rest}", PAGE.replace("BASE", &base))));
    origin.set_sequence(
        "/robots.txt",
        [Reply::text("User-agent: *\n"), Reply::text("User-agent: *\nDisallow: /x\n")],
    );
    let text = format!(
        "[fetch]\nallow = [\"127.0.0.1:{}\"]\n[politeness]\nhost_delay = \"0s\"\n\
         [queue]\nmax_attempts = 1\n\
         [[site]]\nname = \"a\"\nurl = \"{base}/\"\nfeeds = []\n\
         sitemaps = [\"{base}/sitemap.xml\", \"{base}/two.xml\"]\n",
        origin.port()
    );
    let daemon = Daemon::start_on(&text, None).await;
    until(&daemon, "/v1/queue", |queue| queue["queues"][0]["due"] == 5).await;
    // What is said of pages beside their dates may come a moment after them.
    let list = origin.url("/sitemap.xml");
    let is_read =
        |source: &Value| source["url"] == list.as_str() && !source["last_success_at"].is_null();
    until(&daemon, "/v1/sources", |all| {
        all["sources"].as_array().is_some_and(|all| all.iter().any(is_read))
    })
    .await;
    (daemon, origin)
}

async fn document(daemon: &Daemon) -> Value {
    let answer = daemon.get("/openapi.json").await;
    assert_eq!(answer.header("content-type"), Some("application/json"));
    answer.json()
}

/// Holds a value against a schema as strictly as can be: what the schema does
/// not name must not be there. Knows the words that our schemas use, no others.
fn hold(document: &Value, schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    if *schema == json!(true) {
        return Ok(());
    }
    let fields = schema.as_object().ok_or(format!("{at}: no schema"))?;
    if let Some(to) = fields.get("$ref").and_then(Value::as_str) {
        let target = document.pointer(to.trim_start_matches('#')).ok_or(format!("no {to}"))?;
        return hold(document, target, value, at);
    }
    for word in ["anyOf", "oneOf"] {
        if let Some(choices) = fields.get(word).and_then(Value::as_array) {
            let told: Vec<_> = choices.iter().map(|one| hold(document, one, value, at)).collect();
            let fits = told.iter().any(Result::is_ok);
            return if fits { Ok(()) } else { Err(format!("{at}: {value} is none of {told:?}")) };
        }
    }
    if let Some(only) = fields.get("const") {
        return if only == value { Ok(()) } else { Err(format!("{at}: {value} is not {only}")) };
    }
    if let Some(words) = fields.get("enum").and_then(Value::as_array) {
        return if words.contains(value) { Ok(()) } else { Err(format!("{at}: {value}")) };
    }
    let types: Vec<&str> = match &fields["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        one => one.as_str().into_iter().collect(),
    };
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let is_number = found == "integer" && types.contains(&"number");
    if !is_number && !types.contains(&found) {
        return Err(format!("{at}: {value} is no {types:?}"));
    }
    match value {
        Value::Array(items) => items.iter().enumerate().try_for_each(|(n, item)| {
            hold(document, &fields["items"], item, &format!("{at}[{n}]"))
        }),
        Value::Object(members) => {
            let known = fields.get("properties").and_then(Value::as_object);
            for name in fields.get("required").and_then(Value::as_array).into_iter().flatten() {
                let name = name.as_str().unwrap();
                if !members.contains_key(name) {
                    return Err(format!("{at}: {name} is missing"));
                }
            }
            members.iter().try_for_each(|(name, member)| {
                let own = known.and_then(|known| known.get(name));
                let schema = own.or(fields.get("additionalProperties"));
                let Some(schema) = schema else { return Err(format!("{at}: {name} is not told")) };
                hold(document, schema, member, &format!("{at}.{name}"))
            })
        }
        _ => Ok(()),
    }
}

/// Holds an answer against what is told of its operation.
fn judge(document: &Value, method: &str, path: &str, answer: &Answer) -> Result<(), String> {
    let told = &document["paths"][path][method]["responses"];
    let mut response = &told[answer.status.to_string()];
    if let Some(to) = response["$ref"].as_str() {
        response = document.pointer(to.trim_start_matches('#')).ok_or(to)?;
    }
    let at = format!("{method} {path} {}", answer.status);
    if response.is_null() {
        return Err(format!("{at} is not told of: {}", answer.body));
    }
    let kind = answer.header("content-type").unwrap_or_default();
    let Some(content) = response.get("content") else {
        return if answer.body.is_empty() { Ok(()) } else { Err(format!("{at} has a body")) };
    };
    let schema = &content[kind]["schema"];
    if kind.ends_with("json") {
        return hold(document, schema, &answer.json(), &at);
    }
    if schema["type"] == "string" { Ok(()) } else { Err(format!("{at}: {kind} is not told")) }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_is_as_the_description_has_it_down_to_its_fields() {
    let (daemon, origin) = well_fed().await;
    let document = document(&daemon).await;
    let page = origin.url("/a");
    let lease = json!({"include": ["images", "videos", "news", "alternates"], "max": 5});
    let leased = daemon.post("/v1/lease", &lease).await;
    judge(&document, "post", "/v1/lease", &leased).unwrap();
    let leased = leased.json()["urls"].as_array().unwrap().clone();
    let is_a = |url: &&Value| url["url"] == page.as_str();
    let a = leased.iter().find(is_a).expect("all are leased");
    assert_eq!(a["videos"][0]["restriction"]["countries"], json!(["IE", "GB"]));
    let others: Vec<_> = leased.iter().filter(|url| !is_a(url)).map(|url| &url["token"]).collect();
    let failed = json!({"results": [
        {"token": a["token"], "content_hash": "1", "status": 200},
        {"token": others[0], "outcome": "failed", "error": "<b>no</b>", "status": 500},
    ]});
    let (submitted, _) = daemon.store.hear(origin.url("/pinged.xml")).await.unwrap();
    let by_site = daemon.get("/v1/sources").await.json()["sources"].clone();
    let by_role = |role: &str| {
        let found = by_site.as_array().unwrap().iter().find(|source| source["role"] == role);
        found.unwrap()["id"].as_i64().unwrap()
    };
    let (map, robots) = (by_role("sitemap"), by_role("robots"));
    let prefix = json!({ "prefix": origin.url("/blocked") });
    // The robots.txt of the second poll says otherwise than that of the first.
    daemon.post(&format!("/v1/sources/{robots}/poll"), &json!({})).await;
    until(&daemon, "/v1/changes?kinds=rules", |page| page["changes"] != json!([])).await;
    let rules = daemon.get("/v1/polls?limit=1000").await.json();
    let is_change = |poll: &&Value| poll["source"] == robots && poll["result"] == "changed";
    let polls: Vec<_> = rules["polls"].as_array().unwrap().iter().filter(is_change).collect();
    let changed = format!("/v1/polls/{}/changes", polls.last().unwrap()["id"]);

    let calls: Vec<(&str, &str, String, Value)> = vec![
        ("post", "/v1/settle", String::new(), failed),
        ("post", "/v1/extend", String::new(), json!({"tokens": [others[1], "x"]})),
        ("post", "/v1/release", String::new(), json!({"tokens": [others[1]]})),
        ("get", "/v1/changes", "?limit=1000".to_owned(), Value::Null),
        ("get", "/v1/queue", String::new(), Value::Null),
        ("get", "/v1/queue/peek", String::new(), Value::Null),
        ("get", "/v1/queue/dead", String::new(), Value::Null),
        ("post", "/v1/queue/replay", String::new(), json!({"all": true})),
        ("post", "/v1/queue/requeue", String::new(), json!({"urls": [page]})),
        ("post", "/v1/queue/block", String::new(), prefix.clone()),
        ("get", "/v1/queue/blocks", String::new(), Value::Null),
        ("post", "/v1/queue/unblock", String::new(), prefix),
        ("post", "/v1/queue/pause", String::new(), json!({"paused": false})),
        (
            "post",
            "/v1/import",
            String::new(),
            json!({"fetches": [{"url": page, "time": "2026-01-01T00:00:00Z", "changed": true}]}),
        ),
        ("get", "/v1/url", format!("?url={page}"), Value::Null),
        ("get", "/v1/urls", String::new(), Value::Null),
        ("get", "/v1/sites", "?limit=1".to_owned(), Value::Null),
        ("get", "/v1/sites/{name}", "/v1/sites/a".to_owned(), Value::Null),
        ("post", "/v1/sites/{name}/poll", "/v1/sites/a/poll".to_owned(), json!({})),
        ("post", "/v1/sites/{name}/pause", "/v1/sites/a/pause".to_owned(), json!({})),
        ("post", "/v1/sites/{name}/resume", "/v1/sites/a/resume".to_owned(), json!({})),
        ("delete", "/v1/sites/{name}", "/v1/sites/a".to_owned(), Value::Null),
        ("get", "/v1/sources", "?limit=1".to_owned(), Value::Null),
        ("post", "/v1/sources", String::new(), json!({"site": "a", "url": origin.url("/new.xml")})),
        ("get", "/v1/sources/{id}", format!("/v1/sources/{map}"), Value::Null),
        ("post", "/v1/sources/{id}/poll", format!("/v1/sources/{map}/poll"), json!({})),
        ("get", "/v1/submissions", "?pending=true".to_owned(), Value::Null),
        (
            "post",
            "/v1/submissions/{id}/grant",
            format!("/v1/submissions/{submitted}/grant"),
            json!({"site": "a"}),
        ),
        ("delete", "/v1/submissions/{id}", format!("/v1/submissions/{submitted}"), Value::Null),
        ("get", "/v1/polls", String::new(), Value::Null),
        ("get", "/v1/polls/{id}/changes", changed, Value::Null),
        ("delete", "/v1/sources/{id}", format!("/v1/sources/{map}"), Value::Null),
        ("get", "/v1/status", String::new(), Value::Null),
        ("get", "/metrics", String::new(), Value::Null),
        ("get", "/healthz", String::new(), Value::Null),
        ("get", "/readyz", String::new(), Value::Null),
        ("get", "/openapi.json", String::new(), Value::Null),
        ("get", "/", "?refresh=15".to_owned(), Value::Null),
        ("get", "/status.css", String::new(), Value::Null),
        ("get", "/sites", "?from=a".to_owned(), Value::Null),
        ("get", "/site/{name}", "/site/a".to_owned(), Value::Null),
        ("get", "/source/{id}", format!("/source/{map}"), Value::Null),
        ("get", "/url", format!("?url={page}"), Value::Null),
        ("get", "/failing", String::new(), Value::Null),
        ("get", "/hosts", String::new(), Value::Null),
        ("get", "/dead", String::new(), Value::Null),
        ("get", "/blocks", String::new(), Value::Null),
        ("get", "/submissions", String::new(), Value::Null),
        // No form of a page; `pages` sends such.
        ("post", "/order", String::new(), json!({"do": "replay-all"})),
    ];
    let mut seen = BTreeSet::from([("post".to_owned(), "/v1/lease".to_owned())]);
    for (method, path, target, body) in calls {
        let target = match target.as_str() {
            "" => path.to_owned(),
            query if query.starts_with('?') => format!("{path}{query}"),
            whole => whole.to_owned(),
        };
        let answer = match (method, &body) {
            ("get", _) => daemon.get(&target).await,
            ("delete", _) => {
                let head = format!("DELETE {target} HTTP/1.1\r\nHost: {}", daemon.addr);
                daemon.send(&head, b"").await
            }
            _ => daemon.post(&target, &body).await,
        };
        judge(&document, method, path, &answer).unwrap();
        let expected = match (method, path) {
            // A site that the config has cannot be forgotten.
            ("delete", "/v1/sites/{name}") => 409,
            ("post", "/order") => 403,
            ("delete", "/v1/sources/{id}" | "/v1/submissions/{id}") => 204,
            _ => 200,
        };
        assert_eq!(answer.status, expected, "{method} {target}: {}", answer.body);
        seen.insert((method.to_owned(), path.to_owned()));
    }
    let told: BTreeSet<_> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, methods)| {
            let methods = methods.as_object().unwrap().keys();
            methods.map(|method| (method.clone(), path.clone()))
        })
        .collect();
    assert_eq!(seen, told);
}

#[tokio::test]
async fn what_a_page_answers_to_a_mistake_is_told_in_both_of_its_forms() {
    let daemon = Daemon::start(None).await;
    let document = document(&daemon).await;
    let nobody = "http://nobody.test/";
    for (method, path, target, status) in [
        ("get", "/", "/?refreshed=1".to_owned(), 400),
        ("get", "/status.css", "/status.css?v=2".to_owned(), 400),
        ("get", "/site/{name}", "/site/nobody".to_owned(), 404),
        ("get", "/source/{id}", "/source/999999".to_owned(), 404),
        ("get", "/url", format!("/url?url={nobody}&sit=a"), 400),
        ("post", "/order", "/order".to_owned(), 403),
        // Whoever asks the API has no pages.
        ("get", "/v1/url", format!("/v1/url?url={nobody}"), 404),
    ] {
        for accept in ["text/html", "application/json"] {
            let verb = method.to_ascii_uppercase();
            let head =
                format!("{verb} {target} HTTP/1.1\r\nHost: {}\r\nAccept: {accept}", daemon.addr);
            let answer = daemon.send(&head, b"").await;
            assert_eq!(answer.status, status, "{target}: {}", answer.body);
            let is_page = accept == "text/html" && !path.starts_with("/v1/");
            let expected =
                if is_page { "text/html; charset=utf-8" } else { "application/problem+json" };
            assert_eq!(answer.header("content-type"), Some(expected), "{target}");
            judge(&document, method, path, &answer).unwrap();
        }
    }
}

/// Properties of schemas, wherever they stand, that nothing is told of.
pub(crate) fn untold(schema: &Value, at: &str, found: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            let properties = fields.get("properties").and_then(Value::as_object);
            for (name, property) in properties.into_iter().flatten() {
                let told = property["description"].as_str().unwrap_or_default();
                if told.trim().is_empty() {
                    found.push(format!("{at}.{name}"));
                }
            }
            fields.iter().for_each(|(name, part)| untold(part, &format!("{at}/{name}"), found));
        }
        Value::Array(parts) => parts.iter().for_each(|part| untold(part, at, found)),
        _ => {}
    }
}

#[tokio::test]
async fn every_field_of_every_body_and_answer_is_told_of() {
    let daemon = Daemon::start(None).await;
    let document = document(&daemon).await;
    let (schemas, mut found) = (&document["components"]["schemas"], Vec::new());
    assert!(schemas.as_object().unwrap().len() > 50);
    untold(schemas, "", &mut found);
    assert!(found.is_empty(), "{} fields: {found:?}", found.len());
    // Words of a closed set are all named.
    let words = |of: &str, field: &str| schemas[of]["properties"][field]["enum"].clone();
    assert_eq!(words("Source", "state"), json!(["active", "paused", "retired"]));
    assert!(words("Poll", "result").as_array().unwrap().contains(&json!("not-modified")));
}

#[tokio::test]
async fn the_three_forms_of_the_stream_are_told_of() {
    let (daemon, _origin) = well_fed().await;
    let document = document(&daemon).await;
    let content = &document["paths"]["/v1/changes"]["get"]["responses"]["200"]["content"];
    let head = format!("GET /v1/changes HTTP/1.1\r\nHost: {}", daemon.addr);
    let lines = daemon.send(&format!("{head}\r\nAccept: application/x-ndjson"), b"").await;
    let (mut count, schema) = (0, &content["application/x-ndjson"]["schema"]);
    // Chunk sizes stand between the lines.
    for line in lines.body.lines().filter(|line| line.starts_with('{')) {
        let event = serde_json::from_str(line).unwrap();
        hold(&document, schema, &event, "line").unwrap();
        count += 1;
    }
    assert!(count >= 4, "{}", lines.body);
    assert_eq!(content["text/event-stream"]["schema"], *schema);
}

#[tokio::test]
async fn names_are_one_of_a_kind_and_every_reference_leads_somewhere() {
    let daemon = Daemon::start(None).await;
    let document = document(&daemon).await;
    assert_eq!(document["openapi"], "3.1.1");
    let mut ids = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for operation in methods.as_object().unwrap().values() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{id} twice");
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{path}");
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(!parameter.to_string().contains("null"), "{path}: {parameter}");
            }
        }
    }
    let text = document.to_string();
    for to in text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next()) {
        assert!(document.pointer(to).is_some(), "{to}");
    }
    for (name, schema) in document["components"]["schemas"].as_object().unwrap() {
        // A number at the end would be a second type of that name.
        assert!(!name.ends_with(|c: char| c.is_ascii_digit()), "{name}");
        if ["LeaseBody", "SettleItem", "ExtendBody", "ReleaseBody"].contains(&name.as_str()) {
            assert_eq!(schema["additionalProperties"], false, "{name}");
        }
    }
}

#[test]
fn what_is_not_told_does_not_pass_the_judge() {
    let schema =
        json!({"type": "object", "required": ["a"], "properties": {"a": {"type": "integer"}}});
    for (value, fits) in [
        (json!({"a": 1}), true),
        (json!({"a": 1, "b": 1}), false),
        (json!({}), false),
        (json!({"a": "1"}), false),
        (json!(null), false),
    ] {
        assert_eq!(hold(&json!({}), &schema, &value, "it").is_ok(), fits, "{value}");
    }
}
