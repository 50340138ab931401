//! A path comes back as it was, by the daemon and by the view, and is shorter.

use proptest::prelude::*;
use rusqlite::Connection as File;
use xxhash_rust::xxh3::xxh3_64;

use super::*;

/// Paths of many kinds: of shapes that the words were chosen for, but themselves
/// not among what they were chosen from.
const PATHS: [&str; 12] = [
    "/2024/05/12/how-we-rebuilt-our-search-engine/",
    "/p/nike-air-max-90-black-dh8010-002",
    "/index.php?route=product/product&product_id=12345",
    "/shop/damen/schuhe/sneaker-low-weiss-123456.html",
    "/threads/problem-with-the-new-version.482913/page-3",
    "/wiki/Hauptstadt_der_Vereinigten_Staaten",
    "/category/recipes/vegetarian/page/12/",
    "/hotels/france/paris/hotel-du-louvre-h1234567",
    "/user/profile/9f86d081-884c-4d63-a9c1-2f6b8c0e5a11",
    "/forum/viewtopic.php?f=12&t=34567&start=20",
    "/%D0%BD%D0%BE%D0%B2%D0%BE%D1%81%D1%82%D0%B8/",
    "/jobs/view/senior-software-engineer-at-acme-3456789012",
];

fn path() -> impl Strategy<Value = String> {
    prop_oneof![
        "/[a-z]{1,12}/[a-z]{2,9}(-[a-z]{2,9}){0,6}(-[0-9]{1,9})?(/|\\.html)?",
        "/[!-~]{0,60}",
        "/\\PC{0,20}",
        "(/20[0-2][0-9]/[01][0-9]/|/products/|/[A-Z][a-z]+_[A-Z]%[0-9A-F]{2}|[?&]id=[0-9]{1,6}){0,8}",
    ]
}

/// As a row of a file gives it back.
fn kept(path: &str) -> String {
    let kept = near(path);
    let ToSqlOutput::Borrowed(value) = kept.to_sql().unwrap() else { panic!("it is borrowed") };
    let anew = PathText::column_result(value).unwrap().0;
    // In the memory of another it is the same.
    assert_eq!(PathText::in_room(value, "/another".to_owned()).unwrap().0, anew);
    anew
}

fn near(path: &str) -> Kept<'_> {
    abbreviate(path).map_or(Kept::Text(path), |short| Kept::Short(short.into()))
}

fn abbreviate(path: &str) -> Option<Vec<u8>> {
    let mut short = Vec::new();
    Abbreviator::default().write(path, &mut short).then_some(short)
}

proptest! {
    #[test]
    fn any_path_comes_back_as_it_was(path in path()) {
        prop_assert_eq!(kept(&path), path);
    }

    #[test]
    fn what_is_abbreviated_is_shorter_than_the_text(path in path()) {
        let short = abbreviate(&path);
        prop_assert!(short.is_none_or(|short| short.len() < path.len()));
    }

    #[test]
    fn bytes_that_nobody_wrote_are_text_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        let text = expand(&bytes, "another that was here".to_owned());
        prop_assert!(text.is_none_or(|text| text.bytes().all(|byte| PLAIN.contains(&byte))));
    }
}

#[test]
fn paths_of_many_kinds_take_six_tenths_of_their_bytes() {
    let (mut long, mut short) = (0, 0);
    for path in PATHS {
        long += path.len();
        short += abbreviate(path).unwrap().len();
    }
    assert!(short * 10 <= long * 6, "{short} of {long}");
}

#[test]
fn a_text_that_is_no_path_is_kept_as_it_is() {
    for text in ["", "/", "a key of a client", "/grüße-aus-münchen", "/a\u{0}b"] {
        assert_eq!(abbreviate(text), None, "{text:?}");
    }
}

#[test]
fn of_the_ways_to_write_a_path_the_shortest_is_taken() {
    // The longest word at each place is not always on the shortest way.
    for path in PATHS {
        let short = abbreviate(path).unwrap();
        assert_eq!(short.len(), least(path.as_bytes()), "{path}");
    }
}

/// Least bytes for a text, by trying every word at every place.
fn least(text: &[u8]) -> usize {
    let mut least = vec![usize::MAX; text.len() + 1];
    least[0] = 0;
    for at in 0..text.len() {
        let kind = at.checked_sub(1).map_or(BEGINNING, |before| TABLES.kind(text[before]));
        let words = TABLES.words[usize::from(kind)].iter().filter(|word| word.len > 0);
        let fitting = words.map(|word| &word.text[..usize::from(word.len)]);
        for len in fitting.filter(|word| text[at..].starts_with(word)).map(<[u8]>::len).chain([1]) {
            least[at + len] = least[at + len].min(least[at] + 1);
        }
    }
    least[text.len()]
}

#[test]
fn paths_of_a_chunk_are_each_what_they_are_alone() {
    let mut all = Shortened::default();
    let paths: Vec<&str> = PATHS.into_iter().chain(["/", "/grüße"]).chain(PATHS).collect();
    for path in &paths {
        all.push(path);
    }
    for (number, path) in paths.iter().enumerate() {
        assert_eq!(format!("{:?}", all.kept(number, path)), format!("{:?}", near(path)));
    }
    assert!(matches!(Shortened::default().kept(0, "/news/"), Kept::Text("/news/")));
}

#[test]
fn the_words_are_those_that_files_were_written_with() {
    // Files hold codes, not words: other words make other paths of them.
    assert_eq!(xxh3_64(WORDS.as_bytes()), 5_172_231_373_233_943_493, "words.txt must not change");
    for line in WORDS.lines() {
        assert!(listed(line).count() == line.split(' ').count() - 1, "more words than codes");
        let fits = |word: &str| (2..=LONGEST).contains(&word.len()) && word.is_ascii();
        assert!(listed(line).all(|(_, word)| fits(word)), "{line}");
    }
}

#[test]
fn the_view_spells_paths_out_as_the_daemon_does() {
    let file = File::open_in_memory().unwrap();
    file.execute_batch(include_str!("../../../schema.sql")).unwrap();
    write_words(&file).unwrap();
    file.execute_batch(
        "INSERT INTO crawls (id, name) VALUES (1, 'default');
         INSERT INTO hosts (id, authority, name, part, delay_ms)
             VALUES (1, 'https://a.test', 'a.test', 0, 0)",
    )
    .unwrap();
    // Every word at least once: behind a character of its kind.
    let behind = |name: &str| if name == "^" { String::new() } else { format!("/{name}") };
    let words = WORDS.lines().flat_map(|line| {
        let before = behind(&line[..1]);
        listed(line).map(move |(_, word)| format!("{before}{word}")).collect::<Vec<_>>()
    });
    let plain = ["/", "/grüße", "/A0~^|{9Z"].map(str::to_owned);
    let paths: Vec<String> = words.chain(PATHS.map(str::to_owned)).chain(plain).collect();
    let insert = "INSERT INTO urls (id, crawl_id, host_id, path, said) VALUES (?1, 1, 1, ?2, 0)";
    for (id, path) in (0_i64..).zip(&paths) {
        file.execute(insert, rusqlite::params![id, near(path)]).unwrap();
    }
    let mut query = file.prepare("SELECT url FROM url_view ORDER BY id").unwrap();
    let shown = query.query_map([], |row| row.get::<_, String>(0)).unwrap();
    for (shown, path) in shown.zip(&paths) {
        assert_eq!(shown.unwrap(), format!("https://a.test{path}"));
    }
    let short: i64 = file
        .query_row("SELECT count(*) FROM urls WHERE typeof(path) = 'blob'", [], |row| row.get(0))
        .unwrap();
    assert!(short > 6_000, "{short} of {} were abbreviated", paths.len());
}
