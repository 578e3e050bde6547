//! Links of the index page of a directory, in the formats of Apache, nginx and others.

use std::io::Read;

use html5gum::emitters::default::DefaultEmitter;
use html5gum::{IoReader, Token, Tokenizer};

use super::{ListingError, malformed};

/// The start of the titles of index pages: of Apache, nginx and lighttpd; of Python's http.server,
/// Tomcat and rclone; of Jetty; and of serve. Express is left out ("listing directory"): its pages
/// link to directories as to files.
const TITLES: [&str; 4] = ["index of", "directory listing", "directory:", "files within"];
/// Words for a listing in the titles of other index pages, which name the path of the directory,
/// too.
const WORDS: [&str; 5] = ["index of", "listing of", "listing for", "directory", "contents of"];
/// The longest stored title, for the longest path of Linux.
const MAX_TITLE: usize = 4096;

/// Returns the values of `href` in the order of the page.
///
/// A page that does not begin as an index page is refused at its first link, because its links are
/// not a listing. An index page has one of the known titles, in its title or a heading, or a title
/// that is its path (darkhttpd), behind a host (IIS, webfs) or not, or begins with `<pre>` (Go).
pub struct HtmlLinks<R: Read> {
    tokens: Tokenizer<IoReader<R>>,
    /// The decoded path of the directory.
    path: String,
    title: Title,
    /// The text of the open heading.
    heading: Option<String>,
    ended: bool,
}

/// The part of the title read so far.
enum Title {
    Expected,
    Open(String),
    /// The title is that of another page: only a heading can show an index page.
    Other,
    OfIndex,
}

impl<R: Read> HtmlLinks<R> {
    /// Creates a parser of `reader`, which ends at the end of the page of the directory with this
    /// decoded path.
    pub fn new(reader: R, path: &str) -> Self {
        let mut emitter = DefaultEmitter::default();
        // Prevents text in scripts and styles from being parsed as tags.
        emitter.naively_switch_states(true);
        let tokens = Tokenizer::new_with_emitter(IoReader::new(reader), emitter);
        Self { tokens, path: path.to_owned(), title: Title::Expected, heading: None, ended: false }
    }

    fn next_link(&mut self) -> Result<Option<String>, ListingError> {
        for token in self.tokens.by_ref() {
            match token? {
                Token::StartTag(tag) if **tag.name == *b"title" && matches!(self.title, Title::Expected) => {
                    self.title = Title::Open(String::new());
                }
                Token::StartTag(tag) if is_heading(&tag.name) => self.heading = Some(String::new()),
                Token::String(text) => {
                    let title = match &mut self.title {
                        Title::Open(title) => Some(title),
                        _ => self.heading.as_mut(),
                    };
                    if let Some(title) = title {
                        let left = MAX_TITLE.saturating_sub(title.len());
                        title.extend(String::from_utf8_lossy(&text).chars().take(left));
                    }
                }
                Token::EndTag(tag) if **tag.name == *b"title" => {
                    if let Title::Open(title) = &self.title {
                        self.title = if is_title(title, &self.path) { Title::OfIndex } else { Title::Other };
                    }
                }
                Token::EndTag(tag) if is_heading(&tag.name) => {
                    let heading = self.heading.take();
                    if heading.is_some_and(|heading| is_title(&heading, &self.path)) {
                        self.title = Title::OfIndex;
                    }
                }
                Token::StartTag(tag) if **tag.name == *b"pre" && matches!(self.title, Title::Expected) => {
                    self.title = Title::OfIndex;
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

/// Returns whether a title is that of an index page of the directory with this path.
fn is_title(title: &str, path: &str) -> bool {
    let title = title.trim();
    let lower = title.to_ascii_lowercase();
    let names_path = || title.contains(path) && WORDS.iter().any(|word| lower.contains(word));
    title.strip_suffix(path).is_some_and(is_host)
        || TITLES.iter().any(|begin| lower.starts_with(begin))
        || (path != "/" && names_path())
}

fn is_heading(name: &[u8]) -> bool {
    matches!(name, b"h1" | b"h2")
}

/// Returns whether the title of an index page is a host and its path, or a path alone.
fn is_host(before_path: &str) -> bool {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '[' | ']' | ':');
    before_path.is_empty()
        || before_path.ends_with(" - ")
        || (before_path.contains(['.', ':']) && before_path.chars().all(is_name))
}

fn no_index() -> ListingError {
    malformed("the page is no index of a directory; fetch the URLs of files by -i FILE")
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
        HtmlLinks::new(page.as_bytes(), "/a d/").collect()
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
        for begin in [
            // Go, with and without a viewport.
            "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n",
            "<pre>\n",
            // Jetty, IIS, darkhttpd, webfs, serve.
            "<HTML><HEAD><TITLE>Directory: /a d/</TITLE></HEAD>",
            "<html><head><title>host - /a d/</title></head>",
            "<title>/a d/</title>",
            "<head><title>127.0.0.1:80/a d/</title></head>",
            "<head><title>Files within a d/</title>",
            // A heading, and the words of other programs.
            "<title>Files</title><h1>Files</h1><h2><b>Index</b> of /a d/</h2>",
            "<title>Mirror - Directory of /a d/</title><h1>Welcome</h1>",
        ] {
            assert_eq!(links(&format!("{begin}<A HREF=\"x\">x</A>")).unwrap(), ["x"], "{begin}");
        }
        for page in "|text|<a href=x>|<title>Welcome</title><a href=x>|<title>Welcome</title>|\
            <title>Index of|<title>/a d/x</title><a href=x>|<title>Welcome/a d/</title><a href=x>|<title>About</title><pre><a href=x>|<a href=x><pre>|\
            <h1>About /a d/</h1><a href=x>|<title>Our directory</title><a href=x>|<h1>Directory</h1><a href=x>"
            .split('|')
        {
            assert!(matches!(links(page), Err(ListingError::Malformed(_))), "{page}");
        }
    }
}
