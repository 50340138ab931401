//! Bytes of every encoding, cut anywhere, to the same text.

use super::*;

/// Reads all of a document and returns its text and the encoding's name.
fn decode(bytes: &[u8], content_type: Option<&str>) -> (String, &'static str, u64) {
    let mut reader = bytes;
    let mut text = Text::new(&mut reader, content_type);
    let mut out = String::new();
    loop {
        text.fill(8);
        if text.rest().is_empty() {
            break;
        }
        out.push_str(text.rest());
        text.consume(text.rest().len());
    }
    (out, text.encoding(), text.bad_bytes().map_or(0, |bad| bad.count))
}

fn utf16(text: &str, big: bool) -> Vec<u8> {
    text.encode_utf16().flat_map(|u| if big { u.to_be_bytes() } else { u.to_le_bytes() }).collect()
}

fn utf32(text: &str, big: bool) -> Vec<u8> {
    let word = |c: char| if big { u32::from(c).to_be_bytes() } else { u32::from(c).to_le_bytes() };
    text.chars().flat_map(word).collect()
}

fn encoded(label: &str, text: &str) -> Vec<u8> {
    let encoding = encoding_rs::Encoding::for_label(label.as_bytes()).expect("a label");
    encoding.encode(text).0.into_owned()
}

#[test]
fn utf16_and_utf32_are_read_with_and_without_a_mark_whatever_is_declared() {
    let text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><a>é✓𝄞</a>";
    for big in [true, false] {
        let (name16, name32) =
            if big { ("UTF-16BE", "UTF-32BE") } else { ("UTF-16LE", "UTF-32LE") };
        for (bytes, name) in [(utf16(text, big), name16), (utf32(text, big), name32)] {
            assert_eq!(decode(&bytes, Some("text/xml; charset=utf-8")), (text.to_owned(), name, 0));
        }
        let marked = format!("\u{feff}{text}");
        for (bytes, name) in [(utf16(&marked, big), name16), (utf32(&marked, big), name32)] {
            assert_eq!(decode(&bytes, None), (text.to_owned(), name, 0));
        }
    }
}

#[test]
fn a_document_that_names_its_encoding_wins_over_the_default_of_its_server() {
    let text = "<?xml version=\"1.0\" encoding=\"windows-1251\"?><a>Привет</a>";
    let bytes = encoding_rs::WINDOWS_1251.encode(text).0;
    let read = (text.to_owned(), "windows-1251", 0);
    for header in ["text/xml; charset=ISO-8859-1", "text/xml; charset=us-ascii", "text/xml"] {
        assert_eq!(decode(&bytes, Some(header)), read, "{header}");
    }
    let japanese = "<?xml version=\"1.0\" encoding=\"ISO-2022-JP\"?><a>日本</a>";
    let bytes_jp = encoding_rs::ISO_2022_JP.encode(japanese).0;
    let header = Some("text/xml; charset=ISO-8859-1");
    assert_eq!(decode(&bytes_jp, header), (japanese.to_owned(), "ISO-2022-JP", 0));
    // Any other header was written for it.
    assert_eq!(decode(&bytes, Some("text/xml; charset=windows-1252")).1, "windows-1252");
    assert_eq!(decode(&bytes, Some("text/xml; charset=koi8-r")).1, "KOI8-R");
    let plain = encoding_rs::WINDOWS_1252.encode("<a>café</a>").0;
    assert_eq!(decode(&plain, Some("text/xml; charset=ISO-8859-1")).1, "windows-1252");
}

#[test]
fn bytes_that_are_utf8_win_over_every_label() {
    let text = "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>Привет, café</a>";
    let labels = [
        "text/xml; charset=windows-1251",
        "text/xml; charset=\"utf-16\"",
        "text/xml; charset=bogus",
    ];
    for label in labels {
        assert_eq!(decode(text.as_bytes(), Some(label)), (text.to_owned(), "UTF-8", 0), "{label}");
    }
    let marked = [b"\xef\xbb\xbf", text.as_bytes()].concat();
    assert_eq!(decode(&marked, None), (text.to_owned(), "UTF-8", 0));
}

#[test]
fn legacy_encodings_are_read_by_http_label_then_by_declaration() {
    let table = [
        ("windows-1251", "Привет"),
        ("koi8-r", "Привет"),
        ("gb2312", "新闻网站"),
        ("gb18030", "新闻网站"),
        ("shift_jis", "日本語のページ"),
        ("euc-kr", "한국어"),
        ("big5", "繁體中文"),
        ("iso-8859-15", "café €"),
        ("windows-1252", "“café”"),
    ];
    for (label, word) in table {
        let text = format!("<?xml version='1.0' encoding='{label}'?><a>{word} {word}</a>");
        let bytes = encoded(label, &text);
        let (found, name, bad) = decode(&bytes, None);
        assert_eq!((found, bad), (text.clone(), 0), "{label} declared");
        let http = format!("application/xml; charset={label}");
        let bytes =
            encoded(label, &text.replace(&format!("encoding='{label}'"), "encoding='utf-8'"));
        assert!(decode(&bytes, Some(&http)).0.contains(word), "{label} by HTTP");
        assert_eq!(decode(&bytes, Some(&http)).1, name);
    }
    for (label, encoding, word) in [
        ("windows1251", "windows-1251", "Привет"),
        ("Windows_1252", "windows-1252", "“café”"),
        ("windows 1253", "windows-1253", "Ελλάδα"),
        ("win-1257", "windows-1257", "Žemė"),
        ("cp874", "windows-874", "ประเทศไทย"),
        ("windows874", "windows-874", "ประเทศไทย"),
        ("tis620", "windows-874", "ประเทศไทย"),
        ("eucJP", "euc-jp", "日本語のページ"),
        ("EUC_JP", "euc-jp", "日本語のページ"),
        ("EUC_KR", "euc-kr", "한국어"),
        ("shiftjis", "shift_jis", "日本語のページ"),
        ("iso 8859_15", "iso-8859-15", "café €"),
    ] {
        let text = format!("<?xml version='1.0' encoding='{label}'?><a>{word} {word}</a>");
        assert_eq!(decode(&encoded(encoding, &text), None).0, text, "{label} declared");
        let http = format!("text/xml; charset=\"{label}\"");
        assert_eq!(decode(&encoded(encoding, word), Some(&http)).0, word, "{label} by HTTP");
    }
    let iso2022 =
        encoded("iso-2022-jp", "<?xml version='1.0' encoding='iso-2022-jp'?><a>日本語</a>");
    assert!(decode(&iso2022, None).0.contains("日本語"));
}

#[test]
fn where_the_first_letter_stands_does_not_change_the_encoding() {
    for (label, word) in [("windows-1251", "дом"), ("gb2312", "模新闻网站"), ("utf-8", "дом")]
    {
        let declared = format!("<?xml version='1.0' encoding='{label}'?><a>");
        for at in (RAW - 8..RAW + 2).chain([2 * RAW - 1]) {
            let blanks = " ".repeat(at - declared.len());
            let text = format!("{declared}{blanks}{word}{}</a>", " ".repeat(2 * RAW));
            let (found, _, bad) = decode(&encoded(label, &text), None);
            assert!(found == text && bad == 0, "{label} at {at}");
        }
    }
}

#[test]
fn without_a_label_stray_bytes_are_windows_1252_and_the_rest_stays_utf8() {
    assert_eq!(
        decode(b"<a>caf\xe9 \x93x\x94</a>", None),
        ("<a>café “x”</a>".to_owned(), "windows-1252", 3)
    );
    let mixed = [&b"<a>"[..], "é ✓ à è".as_bytes(), b" \xe9</a>"].concat();
    assert_eq!(decode(&mixed, None), ("<a>é ✓ à è é</a>".to_owned(), "UTF-8", 1));
    // One stray byte does not make a page of UTF-8 into what its label says.
    assert_eq!(decode(&mixed, Some("text/xml; charset=iso-8859-1")).1, "UTF-8");
}

#[test]
fn the_first_wrong_byte_is_placed() {
    let mut reader: &[u8] = b"<a>\n\nline three \xff</a>";
    let mut text = Text::new(&mut reader, None);
    text.fill(WINDOW);
    let bad = text.bad_bytes().expect("a wrong byte");
    assert_eq!((bad.line, bad.offset, bad.count), (3, 16, 1));
}

#[test]
fn a_window_slides_and_keeps_count_of_bytes_and_lines() {
    let document = "0123456\n".repeat(50_000);
    let mut reader = document.as_bytes();
    let mut text = Text::new(&mut reader, None);
    let mut used = 0;
    loop {
        text.fill(WINDOW);
        let held = text.rest().len();
        assert!(held <= WINDOW + RAW, "the window is bounded");
        if held == 0 {
            break;
        }
        assert_eq!(text.place(0).offset(), used);
        assert_eq!(text.place(0).line(), used / 8 + 1);
        let step = held.min(40_000);
        text.consume(step);
        used += step as u64;
    }
    assert_eq!(used, 400_000);
}

#[test]
fn a_failing_reader_ends_the_text_and_is_remembered() {
    struct Failing(bool);
    impl Read for Failing {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            if std::mem::replace(&mut self.0, true) {
                return Err(io::Error::other("limit of 50 MiB reached"));
            }
            buf[..3].copy_from_slice(b"<a>");
            Ok(3)
        }
    }
    let mut reader = Failing(false);
    let mut text = Text::new(&mut reader, None);
    text.fill(WINDOW);
    assert_eq!((text.rest(), text.at_end()), ("<a>", true));
    assert_eq!(text.failure(), Some("limit of 50 MiB reached"));
}

proptest::proptest! {
    #[test]
    fn how_bytes_are_cut_does_not_change_the_text(text in "\\PC{0,200}", cut in 1_usize..7) {
        struct Cut<'a>(&'a [u8], usize);
        impl Read for Cut<'_> {
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                let n = self.1.min(self.0.len()).min(buf.len());
                buf[..n].copy_from_slice(&self.0[..n]);
                self.0 = &self.0[n..];
                Ok(n)
            }
        }
        let mut reader = Cut(text.as_bytes(), cut);
        let mut pieces = Text::new(&mut reader, None);
        pieces.fill(WINDOW);
        let whole = decode(text.as_bytes(), None).0;
        proptest::prop_assert_eq!(pieces.rest(), whole);
    }
}
