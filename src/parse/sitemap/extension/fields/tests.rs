//! Extension fields from text: read leniently, noted where they are not.

use super::*;
use proptest::prelude::*;

fn fields(list: &[(&str, &str)]) -> Fields {
    let mut element = 0;
    let mut ended = true;
    let said = |(name, value): &(&str, &str)| {
        // The text of an element is the last that it says.
        element += usize::from(ended);
        ended = !name.contains('@');
        Said { name: (*name).to_owned(), value: (*value).to_owned(), element }
    };
    list.iter().map(said).collect()
}

fn read_video(list: &[(&str, &str)]) -> (Video, Vec<IssueCode>) {
    let mut issues = Vec::new();
    let needed = [
        ("thumbnail_loc", "https://e.com/t"),
        ("title", "v"),
        ("content_loc", "https://e.com/c"),
        ("description", "d"),
    ];
    let is_given = list.iter().any(|(name, _)| *name == "description");
    let needed = needed.get(..needed.len() - usize::from(is_given)).unwrap_or_default();
    let list = fields(&[needed, list].concat());
    let read = video(list, &mut |code, _: &str| issues.push(code));
    (read, issues)
}

#[test]
fn numbers_dates_and_flags_are_read_leniently_and_noted_where_they_are_not() {
    let bad = IssueCode::InvalidTagValue;
    for (name, value, json, issue) in [
        ("duration", "600", "600", None),
        ("duration", "600.4", "600", None),
        ("duration", "1:00:05", "3605", None),
        ("duration", "28800", "28800", None),
        ("duration", "28801", "null", Some(bad)),
        ("duration", "0", "null", Some(bad)),
        ("duration", "-5", "null", Some(bad)),
        ("duration", "ten", "null", Some(bad)),
        ("duration", "99999999999999999999:1", "null", Some(bad)),
        ("rating", "4,2", "4.2", None),
        ("rating", "5.1", "null", Some(bad)),
        ("rating", "NaN", "null", Some(bad)),
        ("view_count", "12,345", "12345", None),
        ("view_count", "many", "null", Some(bad)),
        ("family_friendly", "Yes", "true", None),
        ("live", "no", "false", None),
        ("requires_subscription", "maybe", "null", Some(bad)),
        ("player_loc@allow_embed", "0", "false", None),
        ("expiration_date", "2026-11-21", "\"2026-11-21\"", None),
        ("publication_date", "soon", "null", Some(IssueCode::InvalidDate)),
        ("duration", "", "null", None),
    ] {
        let (video, issues) = read_video(&[(name, value)]);
        let all = serde_json::to_value(video).expect("json");
        let key = name.rsplit('@').next().expect("a name");
        assert_eq!(
            all.get(key).map_or("null".to_owned(), ToString::to_string),
            json,
            "{name}={value}"
        );
        assert_eq!(issues, issue.into_iter().collect::<Vec<_>>(), "{name}={value}");
    }
}

#[test]
fn what_belongs_together_is_read_together() {
    let (video, issues) = read_video(&[
        ("player_loc@allow_embed", "yes"),
        ("player_loc@autoplay", "ap=1"),
        ("player_loc", "https://e.com/p"),
        ("restriction@relationship", "allow"),
        ("restriction", "IE gb,US"),
        ("platform@relationship", "DENY"),
        ("platform", "web tv"),
        ("price@currency", "EUR"),
        ("price@type", "rent"),
        ("price", "1.99"),
        ("price@currency", "USD"),
        ("price", "2,49"),
        ("uploader@info", "https://e.com/u"),
        ("uploader", "Ann"),
        ("tag", "a"),
        ("tag", "b"),
        ("gallery_loc@title", "G"),
        ("gallery_loc", "https://e.com/g"),
        ("show_title", "S"),
        ("season_number", "2"),
        ("unheard_of", "x"),
    ]);
    assert_eq!(issues, []);
    let json = serde_json::to_string(&video).expect("json");
    assert_eq!(
        json,
        "{\"thumbnail_loc\":\"https://e.com/t\",\"title\":\"v\",\"description\":\"d\",\
         \"content_loc\":\"https://e.com/c\",\"player_loc\":\"https://e.com/p\",\"allow_embed\":true,\"autoplay\":\"ap=1\",\
         \"restriction\":{\"relationship\":\"allow\",\"countries\":[\"IE\",\"GB\",\"US\"]},\
         \"platform\":{\"relationship\":\"deny\",\"platforms\":[\"web\",\"tv\"]},\
         \"prices\":[{\"amount\":1.99,\"currency\":\"EUR\",\"type\":\"rent\"},\
         {\"amount\":2.49,\"currency\":\"USD\"}],\
         \"uploader\":{\"name\":\"Ann\",\"info\":\"https://e.com/u\"},\"tags\":[\"a\",\"b\"],\
         \"gallery_loc\":\"https://e.com/g\",\"gallery_title\":\"G\",\
         \"tvshow\":{\"show_title\":\"S\",\"season_number\":2}}"
    );
}

#[test]
fn what_one_element_says_is_not_said_by_another_one() {
    let json = |list: &[(&str, &str)]| {
        let (video, issues) = read_video(list);
        let mut json = serde_json::to_value(video).expect("json");
        let said = json.as_object_mut().expect("an object");
        for needed in ["thumbnail_loc", "title", "content_loc", "description"] {
            said.remove(needed);
        }
        (json.to_string(), issues)
    };
    let bad = IssueCode::InvalidTagValue;
    let prices = [
        ("price@currency", "USD"),
        ("price@type", "own"),
        ("price", "$3.99"),
        ("price@currency", "EUR"),
        ("price", "2.99"),
        ("price", "free"),
        ("price_of", "1"),
    ];
    let want = "{\"prices\":[{\"currency\":\"USD\",\"type\":\"own\"},{\"amount\":2.99,\"currency\":\"EUR\"}]}";
    assert_eq!(json(&prices), (want.to_owned(), vec![bad, bad]));
    let rules = [
        ("restriction@relationship", "allow"),
        ("restriction", "DE"),
        ("restriction@relationship", "deny"),
        ("restriction", "US"),
    ];
    let want = "{\"restriction\":{\"countries\":[\"DE\"],\"relationship\":\"allow\"}}";
    assert_eq!(json(&rules), (want.to_owned(), vec![IssueCode::DuplicateTag; 2]));
    let players = [
        ("player_loc", "https://e.com/p"),
        ("player_loc@allow_embed", "no"),
        ("player_loc", "https://e.com/q"),
        ("restriction", "nowhere"),
        ("platform_x", "web"),
        ("premier_date", "soon"),
    ];
    assert_eq!(json(&players).0, "{\"player_loc\":\"https://e.com/p\"}");
}

#[test]
fn a_count_has_separators_of_thousands_and_no_fraction() {
    for (text, want) in [
        ("1234", Some(1_234)),
        ("1,234,567", Some(1_234_567)),
        ("1 234", Some(1_234)),
        ("12,34,567", Some(1_234_567)),
        ("1.234", Some(1_234)),
        ("1,234.0", Some(1_234)),
        ("12.00", Some(12)),
        ("12.50", None),
        ("1.5", None),
        ("1,2345", None),
        ("1234,567", None),
        ("1,,234", None),
        (",123", None),
        ("+5", None),
        ("", None),
        ("99999999999999999999", None),
    ] {
        assert_eq!(whole(text), want, "{text}");
    }
}

#[test]
fn what_is_missing_wrong_or_twice_is_noted() {
    use IssueCode::{
        DuplicateTag, InvalidAttributeValue, InvalidTagValue, MissingAttribute, MissingTag,
        TooManyExtensions,
    };
    let long = "x".repeat(2_049);
    let tags = [("tag", "t"); 33];
    for (list, expected) in [
        (vec![("title", "again")], DuplicateTag),
        (vec![("duration", "1"), ("duration", "2")], DuplicateTag),
        (vec![("restriction", "IE")], MissingAttribute),
        (
            vec![("restriction@relationship", "x"), ("platform@relationship", "allow")],
            InvalidAttributeValue,
        ),
        (vec![("restriction@relationship", "deny"), ("restriction", "Ireland")], InvalidTagValue),
        (vec![("platform@relationship", "deny"), ("platform", "fridge")], InvalidTagValue),
        (vec![("description", long.as_str())], InvalidTagValue),
        (tags.to_vec(), TooManyExtensions),
    ] {
        let (video, issues) = read_video(&list);
        assert!(issues.contains(&expected), "{list:?}: {issues:?}");
        assert_eq!(video.title.as_deref(), Some("v"));
        assert!(video.tags.len() <= MAX_TAGS);
    }
    let mut issues = Vec::new();
    video(Fields::new(), &mut |code, _: &str| issues.push(code));
    assert!(issues.contains(&MissingTag), "{issues:?}");
}

#[test]
fn what_search_engines_require_is_missed() {
    let mut issues = Vec::new();
    news(fields(&[("name", "The Paper")]), &mut |code, sample: &str| {
        issues.push((code, sample.to_owned()));
    });
    let missed = ["news:language", "news:publication_date", "news:title"];
    assert_eq!(issues, missed.map(|tag| (IssueCode::MissingDetail, tag.to_owned())));
    let mut issues = Vec::new();
    let list =
        [("title", "v"), ("thumbnail_loc", "https://e.com/t"), ("content_loc", "https://e.com/c")];
    video(fields(&list), &mut |code, sample: &str| issues.push((code, sample.to_owned())));
    assert_eq!(issues, [(IssueCode::MissingDetail, "video:description".to_owned())]);
}

#[test]
fn what_an_image_or_a_video_lies_at_is_a_whole_url() {
    use IssueCode::{InvalidTagValue, RelativeUrl};
    for (loc, expected) in [
        ("https://e.com/i.png", None),
        ("HTTP://e.com/ä b.png", None),
        ("//e.com/i.png", Some(RelativeUrl)),
        ("/i.png?a=b:c", Some(RelativeUrl)),
        ("i.png", Some(RelativeUrl)),
        ("https:/i.png", Some(InvalidTagValue)),
        ("https://", Some(InvalidTagValue)),
        ("data:image/png;base64,AAAA", Some(InvalidTagValue)),
    ] {
        let mut issues = Vec::new();
        let found = image(fields(&[("loc", loc)]), &mut |code, _: &str| issues.push(code));
        assert_eq!(issues, expected.into_iter().collect::<Vec<_>>(), "{loc}");
        assert_eq!(found.loc.as_deref(), Some(loc), "it is kept as it is");
    }
}

#[test]
fn an_alternate_is_whole_whatever_its_scheme() {
    for (href, is_whole) in [
        ("https://e.com/de", true),
        ("android-app://com.example/https/e.com", true),
        ("/de", false),
        ("//e.com/de?a=b:c", false),
        ("", false),
    ] {
        let mut issues = Vec::new();
        whole_reference(href, &mut |code, _: &str| issues.push(code));
        assert_eq!(issues.is_empty(), is_whole, "{href}");
    }
}

#[test]
fn news_is_typed() {
    let list = fields(&[
        ("name", "The Times"),
        ("language", "en"),
        ("publication_date", "2026-11-20T08:00:00Z"),
        ("title", "T"),
        ("genres", "PressRelease, Blog"),
        ("keywords", "a, b,,c"),
        ("stock_tickers", "NASDAQ:A, NASDAQ:B"),
        ("access", "Subscription"),
    ]);
    let read = news(list, &mut |code, sample: &str| panic!("{code}: {sample}"));
    assert_eq!(
        serde_json::to_string(&read).expect("json"),
        "{\"publication\":{\"name\":\"The Times\",\"language\":\"en\"},\
         \"publication_date\":\"2026-11-20T08:00:00Z\",\"title\":\"T\",\"access\":\"Subscription\",\
         \"genres\":[\"PressRelease\",\"Blog\"],\"keywords\":[\"a\",\"b\",\"c\"],\
         \"stock_tickers\":[\"NASDAQ:A\",\"NASDAQ:B\"]}"
    );
}

#[test]
fn a_number_with_a_great_exponent_is_kept_as_it_is_read() {
    for value in ["5e31", "5,e31", "1.7976931348623157e308", "4.9406564584124654e-324"] {
        let (video, _) = read_video(&[("price", value)]);
        let text = serde_json::to_string(&video).expect("json");
        let kept: Video = serde_json::from_str(&text).expect("as it was written");
        assert_eq!(serde_json::to_string(&kept).expect("json"), text, "{value}");
    }
}

proptest! {
    #[test]
    fn no_value_makes_it_panic_and_what_is_read_can_be_stored(
        name in "(duration|rating|view_count|live|restriction|restriction@relationship|platform|price|price@type|expiration_date|season_number|tag|uploader@info)",
        value in "\\PC{0,40}|[0-9.,:e+-]{0,24}",
    ) {
        let (video, _) = read_video(&[(&name, &value), (&name, &value)]);
        let text = serde_json::to_string(&video).expect("json");
        prop_assert_eq!(serde_json::from_str::<Video>(&text).map(|v| serde_json::to_string(&v).expect("json")).ok(), Some(text));
    }
}
