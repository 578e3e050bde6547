//! Parser of a Metalink document: from elements to files.

use std::borrow::Cow;
use std::collections::HashSet;

use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::{NsReader, XmlVersion};

use super::file::FileBuilder;
use super::{MAX_DOCUMENT, MAX_FILES, Metalink, MetalinkError, MetalinkFile};

/// A version of Metalink, by its namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    /// Metalink 3.0, second edition (metalinker.org), which MirrorManager of Fedora sends.
    Three,
    /// RFC 5854.
    Four,
}

impl Version {
    fn of(namespace: &ResolveResult<'_>) -> Option<Self> {
        match namespace {
            ResolveResult::Bound(Namespace("urn:ietf:params:xml:ns:metalink")) => Some(Self::Four),
            ResolveResult::Bound(Namespace("http://www.metalinker.org/")) => Some(Self::Three),
            _ => None,
        }
    }
}

/// The deepest accepted nesting; Metalink has four levels.
const MAX_DEPTH: usize = 64;

/// The longest searched XML declaration.
const MAX_DECLARATION: usize = 256;
/// The names of Latin-1 in XML declarations.
const LATIN_1: [&str; 2] = ["ISO-8859-1", "latin1"];

/// An open element, by the handling of its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Element {
    Metalink,
    File,
    Size,
    Hash,
    Pieces,
    PieceHash,
    Url,
    /// `<files>` of version 3, which holds all files.
    Files,
    /// `<verification>` of version 3, which holds the hashes of a file.
    Verification,
    /// `<resources>` of version 3, which holds the URLs of a file.
    Resources,
    /// An element of another namespace, or one that is not used; its content is skipped.
    Ignored,
}

impl Element {
    /// Returns the kind of the child `local`, in Metalink's namespace, of `parent`.
    fn child(version: Version, parent: Self, local: &str) -> Self {
        match (version, parent, local) {
            (Version::Three, Self::Metalink, "files") => Self::Files,
            (Version::Three, Self::File, "verification") => Self::Verification,
            (Version::Three, Self::File, "resources") => Self::Resources,
            (Version::Four, Self::Metalink, "file") | (Version::Three, Self::Files, "file") => Self::File,
            (_, Self::File, "size") => Self::Size,
            (Version::Four, Self::File, "hash") | (_, Self::Verification, "hash") => Self::Hash,
            (Version::Four, Self::File, "pieces") | (_, Self::Verification, "pieces") => Self::Pieces,
            (Version::Four, Self::File, "url") | (_, Self::Resources, "url") => Self::Url,
            (_, Self::Pieces, "hash") => Self::PieceHash,
            _ => Self::Ignored,
        }
    }

    fn holds_text(self) -> bool {
        matches!(self, Self::Size | Self::Hash | Self::PieceHash | Self::Url)
    }
}

#[derive(Default)]
struct Document {
    /// The version of the root element.
    version: Option<Version>,
    open: Vec<Element>,
    ended: bool,
    text: String,
    file: Option<FileBuilder>,
    files: Vec<MetalinkFile>,
    names: HashSet<String>,
}

pub(super) fn parse(document: &[u8]) -> Result<Metalink, MetalinkError> {
    if document.len() > MAX_DOCUMENT.as_usize() {
        return Err(MetalinkError::TooLarge);
    }
    let text = decode(document)?;
    let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let mut document = Document::default();
    loop {
        let at = reader.buffer_position();
        let (namespace, event) = reader.read_resolved_event().map_err(|error| of_reader(error, at))?;
        if event == Event::Eof {
            return document.finish();
        }
        document.take(&namespace, &event).map_err(|fault| fault.at(at))?;
    }
}

/// Decodes a document in UTF-8, or as its XML declaration says in Latin-1.
fn decode(document: &[u8]) -> Result<Cow<'_, str>, MetalinkError> {
    let end = document.windows(2).take(MAX_DECLARATION).position(|end| end == b"?>");
    let declaration = end.map(|end| &document[..end]).filter(|start| start.starts_with(b"<?xml"));
    let declaration = String::from_utf8_lossy(declaration.unwrap_or_default());
    let encoding = declaration.split_once("encoding").and_then(|(_, value)| value.split(['"', '\'']).nth(1));
    if encoding.is_some_and(|name| LATIN_1.iter().any(|latin| name.eq_ignore_ascii_case(latin))) {
        return Ok(document.iter().copied().map(char::from).collect());
    }
    let text = std::str::from_utf8(document).map_err(|error| MetalinkError::Encoding(error.valid_up_to()));
    text.map(Cow::Borrowed)
}

/// An error in an event, without its position in the document.
enum Fault {
    Document(MetalinkError),
    Syntax(String),
}

impl Fault {
    fn at(self, at: u64) -> MetalinkError {
        match self {
            Self::Document(error) => error,
            Self::Syntax(why) => MetalinkError::Syntax { at, why },
        }
    }
}

impl From<MetalinkError> for Fault {
    fn from(error: MetalinkError) -> Self {
        Self::Document(error)
    }
}

impl Document {
    fn take(&mut self, namespace: &ResolveResult<'_>, event: &Event<'_>) -> Result<(), Fault> {
        match event {
            Event::Start(start) => self.start(namespace, start),
            Event::End(_) => Ok(self.end()?),
            Event::Text(text) => self.add_text(&text.xml10_content()),
            Event::CData(text) => self.add_text(&text.xml10_content()),
            Event::GeneralRef(reference) => self.add_text(&resolve(reference)?),
            Event::DocType(_) => Err(MetalinkError::Doctype.into()),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::Eof => Ok(()),
        }
    }

    fn start(&mut self, namespace: &ResolveResult<'_>, start: &BytesStart<'_>) -> Result<(), Fault> {
        let local = start.local_name();
        let version = Version::of(namespace);
        let Some(&parent) = self.open.last() else {
            if self.ended {
                return Err(Fault::Syntax("a second root element".to_owned()));
            }
            if version.is_none() || local.as_ref() != "metalink" {
                return Err(MetalinkError::NotMetalink.into());
            }
            self.version = version;
            self.open.push(Element::Metalink);
            return Ok(());
        };
        if parent.holds_text() {
            return Err(Fault::Syntax(format!("<{}> within text", shown(local.as_ref()))));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(MetalinkError::TooMany { what: "nested elements", limit: MAX_DEPTH }.into());
        }
        let element = match version.filter(|_| version == self.version) {
            Some(version) => Element::child(version, parent, local.as_ref()),
            None => Element::Ignored,
        };
        let attribute = |name: &str| attribute(start, name);
        match (element, &mut self.file) {
            (Element::File, _) => {
                if self.files.len() == MAX_FILES {
                    return Err(MetalinkError::TooMany { what: "files", limit: MAX_FILES }.into());
                }
                self.file = Some(FileBuilder::new(&attribute("name")?.unwrap_or_default())?);
            }
            (Element::Hash, Some(file)) => file.begin_hash(attribute("type")?),
            (Element::Pieces, Some(file)) => {
                file.begin_pieces(attribute("type")?, attribute("length")?)?;
            }
            (Element::Url, Some(file)) => {
                let priority = match version {
                    Some(Version::Three) => attribute("preference")?.as_deref().and_then(priority_of),
                    _ => attribute("priority")?,
                };
                file.begin_url(priority, attribute("location")?)?;
            }
            _ => {}
        }
        self.open.push(element);
        self.text.clear();
        Ok(())
    }

    fn end(&mut self) -> Result<(), MetalinkError> {
        let element = self.open.pop();
        self.ended = self.open.is_empty();
        let text = self.text.trim();
        match (element, &mut self.file) {
            (Some(Element::Size), Some(file)) => file.size(text)?,
            (Some(Element::Hash), Some(file)) => file.end_hash(text)?,
            (Some(Element::PieceHash), Some(file)) => file.piece(text)?,
            (Some(Element::Pieces), Some(file)) => file.end_pieces(),
            (Some(Element::Url), Some(file)) => file.end_url(text),
            (Some(Element::File), _) => {
                if let Some(file) = self.file.take() {
                    let file = file.finish()?;
                    let name = file.name.to_string();
                    if !self.names.insert(name.clone()) {
                        return Err(MetalinkError::RepeatedName(name));
                    }
                    self.files.push(file);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) -> Result<(), Fault> {
        match self.open.last() {
            Some(element) if element.holds_text() => self.text.push_str(text),
            None if !text.trim().is_empty() => {
                return Err(Fault::Syntax("text outside of the root element".to_owned()));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Metalink, MetalinkError> {
        if !self.open.is_empty() {
            return Err(MetalinkError::Truncated);
        }
        if !self.ended {
            return Err(MetalinkError::NotMetalink);
        }
        if self.files.is_empty() {
            return Err(MetalinkError::NoFiles);
        }
        Ok(Metalink { files: self.files })
    }
}

/// Resolves a character reference or one of the five entities predefined in XML; without a DTD there are no others.
fn resolve(reference: &BytesRef<'_>) -> Result<String, Fault> {
    let character = reference.resolve_char_ref().map_err(|error| Fault::Syntax(error.to_string()))?;
    let entity = || quick_xml::escape::resolve_predefined_entity(reference).map(str::to_owned);
    let text = character.map(String::from).or_else(entity);
    text.ok_or_else(|| Fault::Syntax(format!("the entity '{}' is not known", shown(reference))))
}

/// Returns the value of an attribute without a namespace prefix.
fn attribute(start: &BytesStart<'_>, name: &str) -> Result<Option<String>, Fault> {
    let wrong = |error: &dyn std::fmt::Display| Fault::Syntax(format!("attribute '{name}': {error}"));
    let Some(attribute) = start.try_get_attribute(name).map_err(|error| wrong(&error))? else {
        return Ok(None);
    };
    let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| wrong(&error))?;
    Ok(Some(value.into_owned()))
}

/// Returns the priority of a URL of version 3, whose preference is from 1 to 100, the highest first.
fn priority_of(preference: &str) -> Option<String> {
    let preference = preference.parse::<u32>().ok().filter(|preference| (1..=100).contains(preference));
    preference.map(|preference| (101 - preference).to_string())
}

/// Truncates text of the document for a message.
fn shown(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}

fn of_reader(error: quick_xml::Error, at: u64) -> MetalinkError {
    match error {
        quick_xml::Error::Syntax(_) => MetalinkError::Truncated,
        other => MetalinkError::Syntax { at, why: other.to_string().chars().take(200).collect() },
    }
}
