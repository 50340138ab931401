//! Extensions as whole documents: what is kept, what is passed over, and what
//! pages lack between them.

use std::ops::ControlFlow;

use url::Url;

use crate::model::extension::Extensions;
use crate::parse::{Context, IssueCode, Item, Limits, parse};

struct Found {
    locs: Vec<String>,
    dates: Vec<Option<String>>,
    extensions: Vec<Extensions>,
    issues: Vec<(IssueCode, u64)>,
}

impl Found {
    fn count(&self, code: IssueCode) -> u64 {
        self.issues.iter().find(|(known, _)| *known == code).map_or(0, |(_, count)| *count)
    }
}

fn read(body: &str) -> Found {
    read_text(&format!(
        "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9'\n\
         xmlns:image='http://www.google.com/schemas/sitemap-image/1.1'\n\
         xmlns:video='http://www.google.com/schemas/sitemap-video/1.1'\n\
         xmlns:news='http://www.google.com/schemas/sitemap-news/0.9'\n\
         xmlns:mobile='http://www.google.com/schemas/sitemap-mobile/1.0'\n\
         xmlns:codesearch='http://www.google.com/codesearch/schemas/sitemap/1.0'\n\
         xmlns:geo='http://www.google.com/geo/schemas/sitemap/1.0'\n\
         xmlns:xhtml='http://www.w3.org/1999/xhtml'>{body}</urlset>"
    ))
}

fn read_text(text: &str) -> Found {
    let base = Url::parse("https://e.com/sitemap.xml").expect("a URL");
    let context = Context { base: &base, content_type: None, limits: Limits::default() };
    let (mut locs, mut dates, mut extensions) = (Vec::new(), Vec::new(), Vec::new());
    let report = parse(&mut text.as_bytes(), &context, &mut |item| {
        if let Item::Entry(entry) = item {
            locs.push(entry.loc.to_owned());
            dates.push(entry.lastmod.map(|lastmod| lastmod.to_string()));
            extensions.push(entry.extensions.cloned().unwrap_or_default());
        }
        ControlFlow::Continue(())
    });
    let issues = report.issues.iter().map(|issue| (issue.code, issue.count)).collect();
    Found { locs, dates, extensions, issues }
}

/// A page that names these as alternates, each by a language and a URL.
fn page(loc: &str, links: &[(&str, &str)]) -> String {
    let link = |(code, href): &(&str, &str)| {
        format!("<xhtml:link rel='alternate' hreflang='{code}' href='https://e.com/{href}'/>")
    };
    let links = links.iter().map(link).collect::<Vec<_>>().concat();
    format!("<url><loc>https://e.com/{loc}</loc>{links}</url>")
}

#[test]
fn an_unknown_extension_yields_no_phantom_url_and_no_fields() {
    for inner in [
        "<mobile:mobile/>",
        "<mobile/>",
        "<codesearch:codesearch><codesearch:filetype>c</codesearch:filetype>\
         <codesearch:loc>https://e.com/phantom</codesearch:loc></codesearch:codesearch>",
        "<geo:geo><geo:format>kml</geo:format><geo:loc>https://e.com/phantom</geo:loc></geo:geo>",
        "<PageMap xmlns='http://www.google.com/schemas/sitemap-pagemap/1.0'>\
         <DataObject type='document' id='a'><Attribute name='loc'>https://e.com/phantom</Attribute>\
         <loc>https://e.com/phantom</loc><url><loc>https://e.com/phantom</loc></url></DataObject></PageMap>",
        "<PageMap><DataObject><loc>https://e.com/phantom</loc></DataObject></PageMap>",
        "<xhtml:script><xhtml:loc>https://e.com/phantom</xhtml:loc></xhtml:script>",
        "<own:thing xmlns:own='urn:x'><own:loc>https://e.com/phantom</own:loc>\
         <loc>https://e.com/phantom</loc></own:thing>",
        "<undeclared:thing><undeclared:loc>https://e.com/phantom</undeclared:loc></undeclared:thing>",
    ] {
        let entry = format!("<url><loc>https://e.com/a</loc>{inner}</url>");
        let found = read(&format!("{entry}<url>{inner}<loc>https://e.com/b</loc></url>"));
        assert_eq!(found.locs, ["https://e.com/a", "https://e.com/b"], "{inner}");
        assert!(found.extensions.iter().all(Extensions::is_empty), "{inner}");
    }
}

#[test]
fn an_extension_that_was_not_closed_hides_nothing_of_its_entry() {
    let link = |code: &str| {
        format!("<xhtml:link rel='alternate' hreflang='{code}' href='https://e.com/{code}'>")
    };
    let rest = "<lastmod>2026-01-01</lastmod><priority>0.5</priority>";
    for inner in [
        format!("<loc>https://e.com/en</loc>{}{}{rest}", link("de"), link("en")),
        format!("{}{}<loc>https://e.com/en</loc>{rest}", link("de"), link("en")),
        format!("{}<mobile:mobile>{}<loc>https://e.com/en</loc>{rest}", link("de"), link("en")),
        format!(
            "<loc>https://e.com/en</loc>{}<image:image><image:loc>https://e.com/i.png{rest}{}",
            link("de"),
            link("en")
        ),
    ] {
        let found = read(&format!("<url>{inner}</url><url><loc>https://e.com/b</loc></url>"));
        assert_eq!(found.locs, ["https://e.com/en", "https://e.com/b"], "{inner}");
        assert_eq!(found.dates, [Some("2026-01-01".to_owned()), None], "{inner}");
        assert_eq!(found.extensions[0].alternates.len(), 2, "{inner}");
        assert_eq!(found.issues.len(), 1, "{inner}: {:?}", found.issues);
        assert!(found.count(IssueCode::MismatchedTag) > 0, "{inner}");
    }
}

#[test]
fn an_extension_without_a_page_is_no_page() {
    let found = read(
        "<url><image:image><image:loc>https://e.com/i.png</image:loc></image:image></url>\
         <image:image><image:loc>https://e.com/i.png</image:loc></image:image>\
         <url><video:video><video:content_loc>https://e.com/v</video:content_loc></video:video></url>",
    );
    assert_eq!(found.locs, [""; 0]);
}

#[test]
fn a_document_that_is_cut_in_a_video_keeps_its_whole_fields() {
    let base = Url::parse("https://e.com/s").expect("a URL");
    let context = Context { base: &base, content_type: None, limits: Limits::default() };
    let text = "<urlset xmlns:video='http://www.google.com/schemas/sitemap-video/1.1'><url>\
                <loc>https://e.com/a</loc><video:video><video:title>T</video:title><video:descr";
    let mut titles = Vec::new();
    parse(&mut text.as_bytes(), &context, &mut |item| {
        if let Item::Entry(entry) = item {
            let videos = entry.extensions.map(|all| all.videos.clone()).unwrap_or_default();
            titles.extend(videos.into_iter().map(|video| video.title));
        }
        ControlFlow::Continue(())
    });
    assert_eq!(titles, [Some("T".to_owned())]);
}

#[test]
fn versions_that_name_each_other_are_in_order() {
    let all = [("en", "en"), ("de", "de"), ("x-default", "en")];
    let whole = ["en", "de"].map(|loc| page(loc, &all)).concat();
    // A version in another document proves nothing, and neither does one that
    // has no alternates in a document without any.
    let elsewhere = page("fr", &[("fr", "fr"), ("it", "it")]);
    for body in
        [whole.as_str(), elsewhere.as_str(), &page("a", &[]), &format!("{whole}{elsewhere}")]
    {
        let found = read(body);
        assert_eq!(found.issues, [], "{body}");
    }
    // Host and scheme have no letter case.
    let shouted =
        page("en", &all) + &page("de", &all).replace("<loc>https://e.com", "<loc>HTTPS://E.com");
    assert_eq!(read(&shouted).issues, []);
}

#[test]
fn two_spellings_of_one_url_are_one_page() {
    for (listed, named, is_one) in [
        ("https://e.com", "https://e.com/", true),
        ("https://e.com?x", "https://e.com/?x", true),
        ("https://e.com/caf%c3%a9", "https://e.com/caf%C3%A9", true),
        ("https://e.com/日", "https://e.com/%E6%97%A5", true),
        ("https://e.com/é?q=%c3%a9", "https://e.com/%C3%a9?q=é", true),
        ("https://e.com/a", "https://e.com/a/", false),
        ("https://e.com/%c3%a9", "https://e.com/%c3%a8", false),
        ("https://e.com/%zz", "https://e.com/%ZZ", false),
    ] {
        let links = |own: &str, other: &str| {
            format!(
                "<xhtml:link rel='alternate' hreflang='en' href='{own}'/>\
                 <xhtml:link rel='alternate' hreflang='de' href='{other}'/>"
            )
        };
        let de = "https://e.com/de";
        // Its own link is in the other spelling, and so is that of the other page.
        let found = read(&format!(
            "<url><loc>{listed}</loc>{}</url><url><loc>{de}</loc>{}</url>",
            links(named, de),
            links(named, de),
        ));
        let codes = [IssueCode::HreflangNoSelf, IssueCode::HreflangNoReturn];
        let counts = codes.map(|code| found.count(code) > 0);
        assert_eq!(counts, [!is_one; 2], "{listed} {named}");
    }
}

#[test]
fn a_link_that_is_not_returned_is_noted_whichever_page_comes_first() {
    let no_return = IssueCode::HreflangNoReturn;
    let en = page("en", &[("en", "en"), ("de", "de")]);
    for lonely in
        [page("de", &[("de", "de")]), page("de", &[]), page("de", &[("de", "de"), ("fr", "fr")])]
    {
        for body in
            [format!("{en}{lonely}"), format!("{}{lonely}{en}", page("x", &[("x-default", "x")]))]
        {
            assert_eq!(read(&body).count(no_return), 1, "{body}");
        }
    }
}

#[test]
fn a_page_that_returns_the_link_of_the_first_that_named_it_and_not_of_another_is_noted() {
    let all = [("en", "en"), ("de", "de"), ("fr", "fr")];
    let (en, de) = (page("en", &all), page("de", &all));
    let fr = page("fr", &[("en", "en"), ("fr", "fr")]);
    for body in [format!("{en}{de}{fr}"), format!("{en}{fr}{de}"), format!("{fr}{en}{de}")] {
        assert_eq!(read(&body).issues, [(IssueCode::HreflangNoReturn, 1)], "{body}");
    }
}

#[test]
fn a_page_that_leaves_itself_out_and_a_language_given_twice_are_noted() {
    let found = read(&page("en", &[("de", "de")]));
    assert_eq!(found.issues, [(IssueCode::HreflangNoSelf, 1)]);
    let found = read(&page("en", &[("en", "en"), ("EN", "de")]));
    assert_eq!(found.count(IssueCode::DuplicateTag), 1);
    let found = read(&page("en", &[("en", "en"), ("gr", "el")]));
    assert_eq!(found.issues, [(IssueCode::InvalidAttributeValue, 1)]);
}

#[test]
fn clusters_of_many_languages_are_judged_in_bounded_memory() {
    let name = |cluster: usize, version: usize| format!("{cluster}/{version}");
    let codes = ["en", "de", "fr", "es", "it", "nl", "pl", "pt", "ru", "uk", "sv", "da"];
    let mut body = String::new();
    for cluster in 0..1_000 {
        let names: Vec<_> = (0..codes.len()).map(|version| name(cluster, version)).collect();
        let links: Vec<_> = codes.iter().copied().zip(names.iter().map(String::as_str)).collect();
        for (version, loc) in names.iter().enumerate() {
            // The last of every tenth cluster forgot all others.
            let forgot = cluster % 10 == 0 && version == codes.len() - 1;
            let links = if forgot { &links[codes.len() - 1..] } else { &links };
            body += &page(loc, links);
        }
    }
    let found = read(&body);
    assert_eq!(found.locs.len(), 12_000);
    assert_eq!(found.issues, [(IssueCode::HreflangNoReturn, 100)]);
}

#[test]
fn links_to_apps_and_of_other_relations_lack_no_attribute() {
    let missing = IssueCode::MissingAttribute;
    for (link, issues, alternates) in [
        ("rel='alternate' href='android-app://com.e/https/e.com/a'", 0, 1),
        (
            "rel='alternate' media='only screen and (max-width: 640px)' href='https://m.e.com/a'",
            0,
            1,
        ),
        ("rel='amphtml' href='https://e.com/amp'", 0, 0),
        ("rel='canonical' href='https://e.com/a'", 0, 0),
        ("rel='alternate' href='https://e.com/de'", 1, 1),
        ("rel=' ' hreflang='de' href='https://e.com/de'", 1, 0),
        ("hreflang='de' href='https://e.com/de'", 1, 0),
    ] {
        let found = read(&format!("<url><loc>https://e.com/a</loc><xhtml:link {link}/></url>"));
        let count = found.extensions.first().map_or(0, |found| found.alternates.len());
        assert_eq!((found.count(missing), count), (issues, alternates), "{link}");
    }
}

#[test]
fn blanks_around_an_attribute_are_no_part_of_what_it_says() {
    let links = "<xhtml:link rel=' alternate ' hreflang='\n en ' href=' https://e.com/a '/>\
        <xhtml:link rel='alternate' hreflang='de\u{a0}' media=' print ' href='https://e.com/de'/>";
    let video = "<video:video><video:price currency=' EUR ' type='rent\n'>1</video:price>\
        <video:uploader info=' https://e.com/u '>U</video:uploader></video:video>";
    let found = read(&format!("<url><loc>https://e.com/a</loc>{links}{video}</url>"));
    assert_eq!(found.count(IssueCode::InvalidAttributeValue), 0, "{:?}", found.issues);
    assert_eq!(found.count(IssueCode::HreflangNoSelf), 0, "{:?}", found.issues);
    let said = &found.extensions[0];
    let codes: Vec<_> = said.alternates.iter().map(|link| link.hreflang.as_deref()).collect();
    assert_eq!(codes, [Some("en"), Some("de")]);
    assert_eq!(said.alternates[1].media.as_deref(), Some("print"));
    let price = &said.videos[0].prices[0];
    let price = (price.currency.as_deref(), price.kind.as_deref());
    assert_eq!(price, (Some("EUR"), Some("rent")));
    let uploader = said.videos[0].uploader.as_ref().and_then(|uploader| uploader.info.as_deref());
    assert_eq!(uploader, Some("https://e.com/u"));
}

#[test]
fn extensions_are_known_in_the_wrong_namespaces_that_sites_give_them() {
    let entry = "<url><loc>https://e.com/a</loc>\
        <xhtml:link rel='alternate' hreflang='en' href='https://e.com/a'/>\
        <image:image><image:loc>https://e.com/i.png</image:loc></image:image>\
        <image:loc>https://e.com/stray.png</image:loc></url>";
    let wrong = IssueCode::IncorrectNamespace;
    for (xhtml, image, issues) in [
        ("http://www.w3.org/TR/xhtml11/xhtml11_schema.html", "sitemap-image/1.1", 0),
        ("http://www.w3.org/2002/08/xhtml/xhtml1-strict.xsd", "sitemap-image/1.1", 0),
        ("http://www.w3.org/TR/html4", "sitemap-image/1.1", 1),
        ("http://www.w3.org/1999/xhtml", "sitemap/1.1", 1),
        ("http://www.w3.org/1999/xhtml", "image/1.1", 1),
    ] {
        let found = read_text(&format!(
            "<urlset xmlns='http://www.sitemaps.org/schemas/sitemap/0.9' xmlns:xhtml='{xhtml}' \
             xmlns:image='http://www.google.com/schemas/{image}'>{entry}</urlset>"
        ));
        assert_eq!(found.locs, ["https://e.com/a"], "{xhtml} {image}");
        assert_eq!(found.extensions[0].alternates.len(), 1, "{xhtml}");
        assert_eq!(found.extensions[0].images.len(), 1, "{image}");
        assert_eq!(found.count(wrong), issues, "{xhtml} {image}: {:?}", found.issues);
    }
}

#[test]
fn an_extension_without_its_end_tag_hides_none_behind_it() {
    let image = |n: u8| format!("<image:image><image:loc>https://e.com/{n}.png</image:loc>");
    let video = "<video:video><video:title>x</video:title></video:video>";
    let link = "<xhtml:link rel='alternate' hreflang='de' href='https://e.com/de'/>";
    let found = read(&format!(
        "<url><loc>https://e.com/a</loc>{}{}{video}{}{link}</url>",
        image(1),
        image(2),
        image(3)
    ));
    let extensions = &found.extensions[0];
    let counts = [extensions.images.len(), extensions.videos.len(), extensions.alternates.len()];
    assert_eq!((found.locs.len(), counts), (1, [3, 1, 1]));
    assert!(extensions.images.iter().all(|image| image.loc.is_some()));
}

#[test]
fn what_stands_in_a_video_or_news_does_not_end_it() {
    let image = "<image:image><image:loc>https://e.com/1.png</image:loc></image:image>";
    let link = "<xhtml:link rel='alternate' hreflang='de' href='https://e.com/de'/>";
    let found = read(&format!(
        "<url><loc>https://e.com/a</loc><news:news>{image}{link}<news:title>T</news:title></news:news>\
         <video:video>{image}<video:title>V</video:title></video:video></url>"
    ));
    let extensions = &found.extensions[0];
    assert_eq!(extensions.news[0].title.as_deref(), Some("T"));
    assert_eq!(extensions.videos[0].title.as_deref(), Some("V"));
}

#[test]
fn markup_in_a_field_is_part_of_its_text_and_fields_without_their_prefix_are_none() {
    let found = read(
        "<url><loc>https://e.com/a</loc><news:news><news:publication><name>N</name>\
         <news:language>en</news:language></news:publication>\
         <news:title>Foo <i class='x'>Bar<br/></i> <xhtml:b>baz</xhtml:b></news:title></news:news>\
         <image:image><image:caption>a<image:loc>https://e.com/1.png</image:loc></image:image>\
         <video:video><title>V</title><description>D</description></video:video></url>",
    );
    let extensions = &found.extensions[0];
    let news = &extensions.news[0];
    assert_eq!(news.title.as_deref(), Some("Foo Bar baz"));
    let publication = news.publication.as_ref().expect("one");
    assert_eq!(publication.name.as_deref(), Some("N"));
    assert_eq!(publication.language.as_deref(), Some("en"));
    assert_eq!(extensions.images[0].loc.as_deref(), Some("https://e.com/1.png"));
    let video = &extensions.videos[0];
    assert_eq!((video.title.as_deref(), video.description.as_deref()), (Some("V"), Some("D")));
}
