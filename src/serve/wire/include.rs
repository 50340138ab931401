//! Extension fields in answers: which ones a lease asks for, and their shape.
//!
//! What was asked for is there as an array, empty where nothing is known; what
//! was not asked for is left out, and costs nothing.

use serde::Serialize;

use crate::model::extension::{Alternate, Extensions, Image, News, Video};
use crate::serve::problem::Problem;

/// The words of `include`, in the order of [`Include`].
const WORDS: [&str; 4] = ["images", "videos", "news", "alternates"];

/// Which of the four lists a lease asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Include([bool; 4]);

impl Include {
    /// Reads the words of a request.
    pub(super) fn read(words: &[String]) -> Result<Self, Problem> {
        let mut include = Self::default();
        for word in words {
            let asked = WORDS.iter().zip(&mut include.0).find(|(known, _)| *known == word);
            let Some((_, asked)) = asked else {
                let shown: String = word.chars().take(40).collect();
                return Err(Problem::field(format!(
                    "include has {shown:?}; allowed are {}.",
                    WORDS.map(|word| format!("{word:?}")).join(", ")
                )));
            };
            *asked = true;
        }
        Ok(include)
    }

    /// Is anything asked for?
    pub(crate) fn any(self) -> bool {
        self.0.contains(&true)
    }
}

/// The lists of one URL.
#[derive(Debug, Default, Serialize, schemars::JsonSchema)]
pub(super) struct Lists {
    /// `image:image` elements; left out where not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    images: Option<Vec<Image>>,
    /// `video:video` elements; left out where not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    videos: Option<Vec<Video>>,
    /// `news:news` elements; left out where not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    news: Option<Vec<News>>,
    /// `xhtml:link rel=alternate` elements; left out where not asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    alternates: Option<Vec<Alternate>>,
    /// There was no room for them in this answer, or they could not be read
    /// now; `GET /v1/url` has them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    include_cut: bool,
}

impl Lists {
    /// Those that were asked for; `None` where there was no room for them.
    pub(super) fn asked(include: Include, all: Option<Extensions>) -> Self {
        let Some(all) = all else { return Self { include_cut: true, ..Self::default() } };
        let [images, videos, news, alternates] = include.0;
        Self {
            images: images.then_some(all.images),
            videos: videos.then_some(all.videos),
            news: news.then_some(all.news),
            alternates: alternates.then_some(all.alternates),
            include_cut: false,
        }
    }

    /// All of them.
    pub(super) fn all(all: Extensions) -> Self {
        Self::asked(Include([true; 4]), Some(all))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{json, to_value};

    use super::*;

    #[test]
    fn only_what_was_asked_for_is_given_and_a_list_of_nothing_is_empty() {
        let image = Image { loc: Some("https://e.com/i".to_owned()), ..Image::default() };
        let all = Extensions { images: vec![image], ..Extensions::default() };
        let include = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            Include::read(&words)
        };
        let given = |words: &[&str], all| {
            to_value(Lists::asked(include(words).expect("known"), all)).expect("json")
        };
        let images = json!({"images": [{"loc": "https://e.com/i"}]});
        assert_eq!(given(&["images"], Some(all.clone())), images);
        assert_eq!(given(&["news", "news"], Some(all.clone())), json!({"news": []}));
        assert_eq!(given(&["images"], None), json!({"include_cut": true}));
        assert_eq!(
            to_value(Lists::all(all)).expect("json").as_object().map(serde_json::Map::len),
            Some(4)
        );
        assert!(!include(&[]).expect("nothing").any());
        let problem = include(&["image"]).expect_err("an unknown word");
        let told = format!("{problem:?}");
        assert!(told.contains("alternates") && told.contains("image"), "{told}");
    }
}
