//! The tolerant cursor on markup that is right, broken or hostile.

use std::fmt::Write as _;

use super::*;

/// Writes down what it is shown.
#[derive(Default)]
struct Log {
    out: String,
    truncated: bool,
}

impl Visitor for Log {
    fn start(&mut self, tag: &Tag<'_>, depth: usize, _cx: &mut Cx<'_>) -> Next {
        write!(self.out, "<{depth}:{}", tag.local).expect("a string");
        for (name, value) in tag.attributes().filter(|(name, _)| !name.starts_with("xmlns")) {
            write!(self.out, " {name}={}", unescape(value)).expect("a string");
        }
        self.out.push('>');
        Next::Go
    }

    fn text(&mut self, text: &str, _cx: &mut Cx<'_>) {
        self.out.push_str(text);
    }

    fn end(&mut self, depth: usize, implied: bool, _cx: &mut Cx<'_>) -> ControlFlow<()> {
        write!(self.out, "</{depth}{}>", if implied { "!" } else { "" }).expect("a string");
        ControlFlow::Continue(())
    }

    fn doctype(&mut self, root: &str) {
        write!(self.out, "<!{root}>").expect("a string");
    }

    fn finish(&mut self, truncated: bool, _cx: &mut Cx<'_>) {
        self.truncated = truncated;
    }
}

fn log(document: &str) -> (String, Outcome, Vec<IssueCode>) {
    let mut reader = document.as_bytes();
    let mut text = Text::new(&mut reader, None);
    let (mut issues, mut log) = (Issues::default(), Log::default());
    let outcome = read(&mut text, &mut issues, &mut log);
    assert_eq!(log.truncated, issues_has(&issues, IssueCode::Truncated));
    (log.out, outcome, issues.into_list().into_iter().map(|i| i.code).collect())
}

fn issues_has(issues: &Issues, code: IssueCode) -> bool {
    issues.list().iter().any(|issue| issue.code == code)
}

#[test]
fn broken_markup_is_read_as_what_was_meant() {
    use IssueCode::{
        DoctypeIgnored, IncorrectNamespace, LeadingWhitespace, MismatchedTag, ParsingError,
        TrailingContent, Truncated, UnescapedCharacter, UnknownEntity,
    };
    let table: &[(&str, &str, &[IssueCode])] = &[
        ("<a>x</a>", "<1:a>x</1>", &[]),
        ("<a b='1' C=\"2\"/>", "<1:a b=1 C=2></1>", &[]),
        ("<A>x</A>", "<1:a>x</1>", &[]),
        ("<a>1 &amp; 2 &#60; &eacute;</a>", "<1:a>1 & 2 < é</1>", &[]),
        ("<a>?x=1&y=2</a>", "<1:a>?x=1&y=2</1>", &[UnescapedCharacter]),
        ("<a>?x=1&y=2;z</a>", "<1:a>?x=1&y=2;z</1>", &[UnescapedCharacter]),
        ("<a>&nope;</a>", "<1:a>&nope;</1>", &[UnknownEntity]),
        ("<a>&#55357;&#56832;b</a>", "<1:a>😀b</1>", &[UnknownEntity]),
        ("<a>&#55357;b&#0;</a>", "<1:a>\u{fffd}b\u{fffd}</1>", &[UnknownEntity]),
        ("<a>1<2</a>", "<1:a>1<2</1>", &[UnescapedCharacter]),
        ("<a>1<b</a>", "<1:a>1<b</1>", &[UnescapedCharacter]),
        ("<a><b>1<c/d</B ></a>", "<1:a><2:b>1<c/d</2></1>", &[UnescapedCharacter, MismatchedTag]),
        ("<a>1<b c</a>", "<1:a>1<b c</1>", &[UnescapedCharacter]),
        ("<a><b c='1'</a>", "<1:a><2:b c=1></2!></1>", &[ParsingError, MismatchedTag]),
        ("<a><b>1<c&amp;d</a>", "<1:a><2:b>1<c&d</2!></1>", &[UnescapedCharacter, MismatchedTag]),
        ("<a>1<c</d></a>", "<1:a>1<2:c></2!></1>", &[ParsingError, MismatchedTag]),
        ("<a>1<</a>", "<1:a>1<</1>", &[UnescapedCharacter]),
        ("<a><![CDATA[<b>&amp;]]></a>", "<1:a><b>&amp;</1>", &[]),
        ("<a><b><![CDATA[x</b><b>y</b></a>", "<1:a><2:b>x</2><2:b>y</2></1>", &[ParsingError]),
        ("<a><b><![CDATA[x</b> <b>y]]></b></a>", "<1:a><2:b>x</b> <b>y</2></1>", &[]),
        ("<a><b>x</a>", "<1:a><2:b>x</2!></1>", &[MismatchedTag]),
        ("<a>x</b></a>", "<1:a>x</1>", &[MismatchedTag]),
        ("<a><b>x</B></a>", "<1:a><2:b>x</2></1>", &[MismatchedTag]),
        ("<a\n<b>x</b></a>", "<1:a><2:b>x</2></1>", &[ParsingError]),
        ("<a><b c=\"d>x</b><e/></a>", "<1:a><2:b c=d>x</2><2:e></2></1>", &[]),
        ("<a b='1<2'>x</a>", "<1:a b=1<2>x</1>", &[UnescapedCharacter]),
        ("<a>x<br>y</a>", "<1:a>x<2:br></2>y</1>", &[]),
        ("<a><img>x<b>y</b></img></a>", "<1:a><2:img>x<3:b>y</3></2></1>", &[]),
        ("<a><IMG b='1'>x</img></a>", "<1:a><2:img b=1>x</2></1>", &[MismatchedTag]),
        ("<a>x<br>y</br>z</a>", "<1:a>x<2:br>y</2>z</1>", &[]),
        (
            "<a><b>x<br>y</b><b>z</br></b></a>",
            "<1:a><2:b>x<3:br></3>y</2><2:b>z</2></1>",
            &[MismatchedTag],
        ),
        ("<a>x</a", "<1:a>x</1!>", &[ParsingError]),
        ("<a>x</A\n", "<1:a>x</1!>", &[ParsingError]),
        ("<aa>x</a", "<1:aa>x</1!>", &[Truncated]),
        ("<a>x", "<1:a>x", &[Truncated]),
        ("<a>x<", "<1:a>x", &[Truncated]),
        ("<a><!-- x", "<1:a>", &[ParsingError, Truncated]),
        ("<a><!-- x --><b/></a>", "<1:a><2:b></2></1>", &[]),
        ("<?xml version='1.0'><a/>", "<1:a></1>", &[]),
        ("\n<?xml version='1.0'?><a/>", "<1:a></1>", &[LeadingWhitespace]),
        ("warning!<a/>", "<1:a></1>", &[LeadingWhitespace]),
        ("<a/>bye", "<1:a></1>", &[TrailingContent]),
        ("<!DOCTYPE a SYSTEM 'x'><a/>", "<!a><1:a></1>", &[]),
        (
            "<!DOCTYPE a [<!ENTITY e 'v>]'> ]><a>&e;</a>",
            "<!a><1:a>&e;</1>",
            &[DoctypeIgnored, UnknownEntity],
        ),
        ("<p:a>x</p:a>", "<1:a>x</1>", &[IncorrectNamespace]),
        ("<a><?php echo '>' ?></a>", "<1:a></1>", &[]),
        ("<?xml-stylesheet href='a>b'?><a/>", "<1:a></1>", &[]),
        ("<?xml-stylesheet href='a>b'><a/>", "<1:a></1>", &[ParsingError]),
        ("<?xml-stylesheet href='a?><a b='1'/>", "<1:a b=1></1>", &[]),
        ("<a><?x y><b/></a>", "<1:a><2:b></2></1>", &[ParsingError]),
        ("<a><!-- x -><b/></a>", "<1:a><2:b></2></1>", &[ParsingError]),
        ("<a><!-- x -><b/><!-- y --><c/></a>", "<1:a><2:b></2><2:c></2></1>", &[ParsingError]),
        ("<a><!-- x --\n<!-- y --></a>", "<1:a></1>", &[ParsingError]),
        ("<a><?x y><b/><?z?><c/></a>", "<1:a><2:b></2><2:c></2></1>", &[ParsingError]),
        ("<a><b c=\"x</b><b c=\"y\"/></a>", "<1:a><2:b c=x></2><2:b c=y></2></1>", &[ParsingError]),
        (
            "<a><url><b c='x</url><url><b c='y'/></url></a>",
            "<1:a><2:url><3:b c=x></3!></2><2:url><3:b c=y></3></2></1>",
            &[ParsingError, MismatchedTag],
        ),
    ];
    for (document, want, codes) in table {
        let (out, outcome, found) = log(document);
        assert_eq!((out.as_str(), found.as_slice()), (*want, *codes), "{document}");
        assert_eq!(outcome.complete, !codes.contains(&Truncated), "{document}");
    }
}

#[test]
fn what_is_left_of_the_mistyped_end_of_a_section_is_no_part_of_its_text() {
    let table = [
        ("x]]", "x"),
        ("x]>", "x"),
        ("x ]] >\n", "x "),
        ("x]", "x]"),
        ("x>", "x>"),
        ("x[1]", "x[1]"),
    ];
    for (text, want) in table {
        let (out, outcome, codes) = log(&format!("<a><b><![CDATA[{text}</b><url/></a>"));
        assert_eq!(out, format!("<1:a><2:b>{want}</2><2:url></2></1>"), "{text}");
        assert!(outcome.complete, "{text}");
        assert_eq!(codes, [IssueCode::ParsingError], "{text}");
    }
}

#[test]
fn a_document_whose_comment_or_section_hides_entries_is_not_complete() {
    let table = [
        ("<a><!-- <b --><b/></a>", true),
        ("<a><!-- <b> <!-- y --><b/></a>", false),
        ("<a><?x <b> ?><b/></a>", true),
        ("<a><?x <item> ?><b/></a>", false),
    ];
    for (document, complete) in table {
        let (out, outcome, codes) = log(document);
        assert_eq!((out.as_str(), outcome.complete), ("<1:a><2:b></2></1>", complete));
        assert_eq!(codes.is_empty(), complete, "{document}: {codes:?}");
    }
    let (out, outcome, codes) = log("<a><url><b><![CDATA[x</b></url><url><b>y]]></b></url></a>");
    assert_eq!(out, "<1:a><2:url><3:b>x</3></2><2:url><3:b>y]]></3></2></1>");
    assert!(outcome.complete && codes == [IssueCode::ParsingError], "{codes:?}");
}

#[test]
fn what_a_comment_hides_stays_hidden_where_the_document_was_cut_within_it() {
    let table = [
        // The root does not end: it was cut.
        ("<a><b/><!-- <c/><d/>", "<1:a><2:b></2>"),
        ("<a><b/><!-- <c>1</c><d>2</d", "<1:a><2:b></2>"),
        ("<a><b>1<!-- <c/><d/></b>", "<1:a><2:b>1"),
        // It ends: that of the comment was forgotten.
        ("<a><b/><!-- <c><d/></a>", "<1:a><2:b></2><2:d></2></1>"),
        ("<p:a><!-- <c><d/></p:a>", "<1:a><2:d></2></1>"),
        // So it does where it was put into a page.
        ("<a><!-- <c><d/></a>\n</body></HTML>\n", "<1:a><2:d></2></1>"),
        ("<a><b/><!-- <c/><d/></body></html>", "<1:a><2:b></2>"),
        // What was meant to be its end is there.
        ("<a><!-- x -><c/><d/>", "<1:a><2:c></2><2:d></2>"),
    ];
    for (document, want) in table {
        let (out, outcome, codes) = log(document);
        assert_eq!(out, want, "{document}");
        assert!(!outcome.complete || want.ends_with("</1>"), "{document}");
        assert!(codes.contains(&IssueCode::ParsingError), "{document}: {codes:?}");
    }
}

#[test]
fn a_document_that_ends_in_a_bracket_says_what_is_wrong() {
    let (.., outcome, codes) = log("<a>x</a><");
    assert!(!outcome.complete && codes == [IssueCode::ParsingError], "{codes:?}");
}

#[test]
fn a_token_that_straddles_windows_is_read_whole() {
    // Every alignment of a tag, a reference and a CDATA section to the edge.
    let tail = "<b c='1 > 0'>&amp;&eacute;<![CDATA[<x>]]></b><!-- c --></a>";
    let plain = log(&format!("<a>{tail}")).0;
    let want = plain.strip_prefix("<1:a>").expect("the root");
    for shift in 0..tail.len() + 2 {
        let filler = "é".repeat((WINDOW - shift) / 2);
        let (out, outcome, codes) = log(&format!("<a>{filler}{tail}"));
        assert!(out.ends_with(want), "{shift}: {}", &out[out.len() - 80..]);
        assert!(outcome.complete && codes.is_empty(), "{shift}: {codes:?}");
    }
}

#[test]
fn a_pair_that_straddles_windows_is_one_character() {
    let tail = "&#55357;&#56832;</a>";
    for shift in 0..tail.len() + 2 {
        let filler = "-".repeat(WINDOW - shift);
        let (out, ..) = log(&format!("<a>{filler}{tail}"));
        assert!(out.ends_with("-😀</1>"), "{shift}: {}", &out[WINDOW - 20..]);
    }
}

#[test]
fn what_is_forgotten_is_told_alike_wherever_a_window_ends() {
    let tail = "<b>1<c</b ><!-- x -><b/><?y z><b/><?xml-stylesheet a='>'><b/>";
    let (plain, ..) = log(&format!("<a>{tail}</a>"));
    let want =
        plain.strip_prefix("<1:a>").and_then(|end| end.strip_suffix("</1>")).expect("a root");
    for behind in [0, 3 * WINDOW] {
        for shift in 0..tail.len() + 2 {
            let (before, behind) = ("-".repeat(WINDOW - shift), "<i/>".repeat(behind / 4));
            let (out, outcome, codes) = log(&format!("<a>{before}{tail}{behind}</a>"));
            assert!(out[before.len()..].contains(want), "{shift}: {codes:?}");
            let forgotten = [IssueCode::UnescapedCharacter, IssueCode::ParsingError];
            assert!(outcome.complete && codes == forgotten, "{shift}: {codes:?}");
        }
    }
}

#[test]
fn comments_and_instructions_are_as_long_as_they_are() {
    for (begin, end) in [("<!--", "-->"), ("<?x", "?>")] {
        for text in [10, 60_000, 70_000, 1_000_000] {
            let inside = "<b>é</b> ".repeat(text / 10);
            let (out, outcome, codes) = log(&format!("<a>{begin} {inside}{end}<c/></a>"));
            assert_eq!(out, "<1:a><2:c></2></1>", "{begin} {text}");
            assert!(outcome.complete && codes.is_empty(), "{codes:?}");
        }
    }
}

#[test]
fn however_many_ends_are_forgotten_all_is_read() {
    for unit in ["<!-- x >", "<?x y>", "<?xml-stylesheet '>", "<!-- x ><?x y><?xml-stylesheet \">"]
    {
        // Also where many of them come before the end that is there.
        for end in ["", "--> ?>"] {
            let (out, outcome, _) = log(&format!("<a>{}{end}</a>", unit.repeat(100_000)));
            assert!(out.starts_with("<1:a>") && outcome.complete, "{unit}");
        }
    }
}

#[test]
fn style_sheets_whose_quotes_hide_every_end_take_no_longer() {
    for unit in ["<?xml-stylesheet '>'", "<?xml-stylesheet \">\""] {
        // Each of them a look at all that is near would be hours.
        let (out, ..) = log(&format!("<a>{}</a>", unit.repeat(1_000_000)));
        assert!(out.starts_with("<1:a>"), "{unit}");
    }
}

#[test]
fn an_end_tag_in_a_section_is_text_however_far_off_the_end_of_the_section_is() {
    for text in [10, 20_000, 60_000] {
        let filler = "é>".repeat(text / 3);
        let (out, outcome, codes) =
            log(&format!("<a><b><![CDATA[x</b>{filler}]]></b><b>y</b></a>"));
        assert_eq!(out, format!("<1:a><2:b>x</b>{filler}</2><2:b>y</2></1>"));
        assert!(outcome.complete && codes.is_empty(), "{codes:?}");
    }
}

#[test]
fn elements_beyond_the_depth_limit_are_passed_over_and_the_rest_is_read() {
    let deep = format!("<item>{}{}</item>", "<x>".repeat(200), "</x>".repeat(200));
    let (out, outcome, codes) = log(&format!("<rss>{deep}<item>y</item></rss>"));
    assert!(out.ends_with("<2:item>y</2></1>"), "{out}");
    assert!(!outcome.complete);
    assert_eq!(codes, [IssueCode::TooDeep]);
}

#[test]
fn an_end_tag_without_its_bracket_ends_its_element() {
    let table = [
        (
            "<a><loc>https://e.com/1/loc>\n<b>2</b></a>",
            "<1:a><2:loc>https://e.com/1</2><2:b>2</2></1>",
        ),
        ("<a><b>x&amp;y/b> <c>1/c></a>", "<1:a><2:b>x&y</2><2:c>1</2></1>"),
        ("<a xmlns:n='u'><n:b>/n:b></a>", "<1:a><2:b></2></1>"),
    ];
    for (document, want) in table {
        let (out, outcome, issues) = log(document);
        assert_eq!(out, want, "{document}");
        assert!(outcome.complete, "{document}");
        assert_eq!(issues, [IssueCode::MismatchedTag], "{document}");
    }
    // With the end tag behind it, or of another name, it is text.
    for text in ["1/b>", "1/c>", "1/b>2"] {
        let (out, _, issues) = log(&format!("<a><b>{text}</b></a>"));
        assert_eq!(out, format!("<1:a><2:b>{text}</2></1>"));
        assert_eq!(issues, [], "{text}");
    }
}

#[test]
fn whether_an_end_tag_lacks_its_bracket_does_not_depend_on_where_a_window_ends() {
    for (inside, want, codes) in [
        ("x/b></b>", "x/b></2>", &[][..]),
        ("x/b> \n</b>", "x/b> \n</2>", &[]),
        ("x/b>more</b>", "x/b>more</2>", &[]),
        ("x/</b>", "x/</2>", &[]),
        ("&amp;/b></b>", "&/b></2>", &[]),
        ("x&lt;/b> <i/>y</b>", "x</b> <3:i></3>y</2>", &[]),
        ("&lt;b&gt;x&lt;/b><!-- c --></b>", "<b>x</b></2>", &[]),
        ("x/b> \n<c>1</c>", "x</2><2:c>1</2>", &[IssueCode::MismatchedTag]),
        ("&amp;/b></c><c>1</c>", "&</2><2:c>1</2>", &[IssueCode::MismatchedTag]),
    ] {
        for shift in 0..inside.len() + 8 {
            for tag in ["<b>", "<b ><i/>"] {
                let filler = "-".repeat(WINDOW - 3 - tag.len() - shift);
                let (out, outcome, issues) = log(&format!("<a>{tag}{filler}{inside}</a>"));
                assert!(
                    out.ends_with(&format!("-{want}</1>")),
                    "{shift} {inside}: {}",
                    &out[WINDOW - 99..]
                );
                assert!(outcome.complete, "{shift} {inside}");
                assert_eq!(issues, codes, "{shift} {inside}");
            }
        }
    }
}
