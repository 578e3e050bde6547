//! Links of the index page of a directory, in the formats of Apache, nginx and others.

use std::io::Read;

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{IoReader, Token, Tokenizer};

use super::ListingError;

/// The start of the titles of index pages: of Apache, nginx and lighttpd, and of Python's http.server.
const TITLES: [&str; 2] = ["index of", "directory listing for"];
/// The longest stored title.
const MAX_TITLE: usize = 64;

/// Returns the values of `href` in the order of the page.
///
/// A page whose title is not that of an index page is refused at its first link, because its links are not a listing.
pub struct HtmlLinks<R: Read> {
    tokens: Tokenizer<IoReader<R>>,
    title: Title,
    ended: bool,
}

/// The part of the title read so far.
enum Title {
    Expected,
    Open(String),
    OfIndex,
}

impl<R: Read> HtmlLinks<R> {
    /// Creates a parser of `reader`, which ends at the end of the page.
    pub fn new(reader: R) -> Self {
        let mut emitter = DefaultEmitter::default();
        // Prevents text in scripts and styles from being parsed as tags.
        emitter.naively_switch_states(true);
        let tokens = Tokenizer::new_with_emitter(IoReader::new(reader), emitter);
        Self { tokens, title: Title::Expected, ended: false }
    }

    fn next_link(&mut self) -> Result<Option<String>, ListingError> {
        for token in self.tokens.by_ref() {
            match token? {
                Token::StartTag(tag) if **tag.name == *b"title" && matches!(self.title, Title::Expected) => {
                    self.title = Title::Open(String::new());
                }
                Token::String(text) => {
                    if let Title::Open(title) = &mut self.title {
                        let left = MAX_TITLE.saturating_sub(title.len());
                        title.extend(String::from_utf8_lossy(&text).chars().take(left));
                    }
                }
                Token::EndTag(tag) if **tag.name == *b"title" => {
                    if let Title::Open(title) = &self.title {
                        let title = title.trim_start().to_ascii_lowercase();
                        if !TITLES.iter().any(|begin| title.starts_with(begin)) {
                            return Err(no_index());
                        }
                        self.title = Title::OfIndex;
                    }
                }
                Token::StartTag(tag) if **tag.name == *b"a" => {
                    let Some(href) = tag.attributes.get(&b"href"[..]) else { continue };
                    if !matches!(self.title, Title::OfIndex) {
                        return Err(no_index());
                    }
                    return Ok(Some(String::from_utf8_lossy(href).into_owned()));
                }
                _ => {}
            }
        }
        match self.title {
            Title::OfIndex => Ok(None),
            _ => Err(no_index()),
        }
    }
}

fn no_index() -> ListingError {
    ListingError::Malformed("the page is no index of a directory".to_owned())
}

impl<R: Read> Iterator for HtmlLinks<R> {
    type Item = Result<String, ListingError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let link = self.next_link();
        self.ended = !matches!(link, Ok(Some(_)));
        link.transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(page: &str) -> Result<Vec<String>, ListingError> {
        HtmlLinks::new(page.as_bytes()).collect()
    }

    #[test]
    fn links_of_index_pages_are_returned_and_other_pages_refused() {
        let nginx = "<html>\r\n<head><title>Index of /d/</title></head>\r\n<body>\r\n<h1>Index of /d/</h1><hr><pre>\
            <a href=\"../\">../</a>\r\n<a href=\"a%20b&amp;c\">a b&amp;c</a>  06-Nov-1994 08:49  7\r\n</pre></body></html>";
        assert_eq!(links(nginx).unwrap(), ["../", "a%20b&c"]);
        let apache = "<!DOCTYPE HTML><title>\nIndex of /</title><a HREF=x>x</A><!-- <a href=no> --><script>'<a href=no>'</script>\
            <a name=y><a href='?C=N;O=D'>";
        assert_eq!(links(apache).unwrap(), ["x", "?C=N;O=D"]);
        assert_eq!(links("<title>Directory listing for /</title>").unwrap(), [""; 0]);
        for page in "|text|<a href=x>|<title>Welcome</title><a href=x>|<title>Welcome</title>|\
            <title>Index of"
            .split('|')
        {
            assert!(matches!(links(page), Err(ListingError::Malformed(_))), "{page}");
        }
    }
}
