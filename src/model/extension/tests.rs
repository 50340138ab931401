//! What extension fields mean, and that they survive being stored.

use super::*;

fn date(text: &str, precision: Precision) -> Lastmod {
    Lastmod { at: at(text), precision }
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a timestamp")
}

fn videos(ends: &[Option<Lastmod>]) -> Extensions {
    let video = |end: &Option<Lastmod>| Video { expiration_date: *end, ..Video::default() };
    Extensions { videos: ends.iter().map(video).collect(), ..Extensions::default() }
}

#[test]
fn a_page_expires_with_the_last_of_its_videos_and_never_beside_one_without_an_end() {
    let now = at("2026-11-21T12:00:00Z");
    let early = Some(date("2026-11-01T08:00:00Z", Precision::Second));
    let late = Some(date("2026-11-20T00:00:00Z", Precision::Day));
    let expiry = |ends: &[Option<Lastmod>]| videos(ends).marks(now).expiry;
    assert_eq!(expiry(&[]), Expiry::NoVideo);
    assert_eq!(expiry(&[early, None]), Expiry::Never);
    assert_eq!(expiry(&[early]), Expiry::At(at("2026-11-01T08:00:00Z").as_second()));
    let end_of_day = Expiry::At(at("2026-11-21T00:00:00Z").as_second());
    assert_eq!(expiry(&[late, early]), end_of_day);
    assert_eq!(Expiry::NoVideo.and(end_of_day), end_of_day);
    assert_eq!(Expiry::Never.and(end_of_day), Expiry::Never);
}

#[test]
fn news_is_fresh_for_two_days_and_not_before_it_is_published() {
    let now = at("2026-11-21T12:00:00Z");
    let fresh = |text: &str| {
        let news =
            News { publication_date: Some(date(text, Precision::Second)), ..News::default() };
        let all = Extensions { news: vec![news], ..Extensions::default() };
        all.marks(now).fresh_until_s
    };
    let until = |text: &str| Some(at(text).as_second());
    assert_eq!(fresh("2026-11-21T08:00:00Z"), until("2026-11-23T08:00:00Z"));
    assert_eq!(fresh("2026-11-19T12:00:01Z"), until("2026-11-21T12:00:01Z"));
    assert_eq!(fresh("2026-11-19T12:00:00Z"), None);
    assert_eq!(fresh("2026-11-21T20:00:00Z"), until("2026-11-23T12:00:00Z"));
    assert_eq!(fresh("2026-11-24T12:00:00Z"), None);
}

#[test]
fn of_two_sources_the_first_counts_and_the_other_adds() {
    let image = |loc: &str, title: Option<&str>| Image {
        loc: Some(loc.to_owned()),
        title: title.map(str::to_owned),
        ..Image::default()
    };
    let titled = |title: &str| News { title: Some(title.to_owned()), ..News::default() };
    let mut one = Extensions {
        images: vec![image("a", Some("own"))],
        news: vec![titled("own")],
        ..Extensions::default()
    };
    one.merge(Extensions {
        images: vec![image("a", None), image("b", None)],
        news: vec![titled("other")],
        ..Extensions::default()
    });
    assert_eq!(one.images, [image("a", Some("own")), image("b", None)]);
    assert_eq!(one.news, [titled("own")]);
}

#[test]
fn what_is_written_is_read_again_and_what_is_absent_is_left_out() {
    let video = Video {
        title: Some("t".to_owned()),
        duration: Some(600),
        rating: Some(4.5),
        expiration_date: Some(date("2026-11-20T00:00:00Z", Precision::Day)),
        prices: vec![Price {
            amount: Some(1.99),
            kind: Some("rent".to_owned()),
            ..Price::default()
        }],
        ..Video::default()
    };
    let all = Extensions { videos: vec![video], ..Extensions::default() };
    let text = serde_json::to_string(&all).expect("json");
    assert_eq!(
        text,
        r#"{"videos":[{"title":"t","duration":600,"expiration_date":"2026-11-20","rating":4.5,"prices":[{"amount":1.99,"type":"rent"}]}]}"#
    );
    assert_eq!(serde_json::from_str::<Extensions>(&text).expect("json"), all);
    // What a later version adds is passed over.
    let newer = r#"{"videos":[{"smell":1}],"sounds":[]}"#;
    assert_eq!(serde_json::from_str::<Extensions>(newer).expect("json").videos.len(), 1);
}
