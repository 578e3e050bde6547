//! Parser of a Metalink document: from elements to files.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::{Namespace, ResolveResult};
use quick_xml::{NsReader, XmlVersion};

use super::file::FileBuilder;
use super::{MAX_DOCUMENT, MAX_FILES, Metalink, MetalinkFile};
use crate::proto::Malformed;

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
/// The error of a document that is cut off.
const CUT_OFF: &str = "the metalink is cut off";
/// The error of a document of another kind.
const NOT_METALINK: &str = "this is not a Metalink document: its root is neither \
    <metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"> (RFC 5854) nor that of Metalink 3";
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
    /// The offset of the event, for errors.
    at: u64,
    open: Vec<Element>,
    ended: bool,
    text: String,
    /// The attributes of the open element with text.
    attributes: [Option<String>; 2],
    file: Option<FileBuilder>,
    files: Vec<MetalinkFile>,
    names: HashSet<String>,
}

pub(super) fn parse(document: &[u8]) -> Result<Metalink, Malformed> {
    if document.len() > MAX_DOCUMENT.as_usize() {
        return Err(Malformed::new(format!("the metalink is larger than {MAX_DOCUMENT}")));
    }
    let text = decode(document)?;
    let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
    reader.config_mut().expand_empty_elements = true;
    let mut document = Document::default();
    loop {
        document.at = reader.buffer_position();
        let (namespace, event) = reader.read_resolved_event().map_err(|error| document.unreadable(&error))?;
        if event == Event::Eof {
            return document.finish();
        }
        document.take(&namespace, &event)?;
    }
}

/// Decodes a document in UTF-8, or as its XML declaration says in Latin-1.
fn decode(document: &[u8]) -> Result<Cow<'_, str>, Malformed> {
    let end = document.windows(2).take(MAX_DECLARATION).position(|end| end == b"?>");
    let declaration = end.map(|end| &document[..end]).filter(|start| start.starts_with(b"<?xml"));
    let declaration = String::from_utf8_lossy(declaration.unwrap_or_default());
    let encoding = declaration.split_once("encoding").and_then(|(_, value)| value.split(['"', '\'']).nth(1));
    if encoding.is_some_and(|name| LATIN_1.iter().any(|latin| name.eq_ignore_ascii_case(latin))) {
        return Ok(document.iter().copied().map(char::from).collect());
    }
    std::str::from_utf8(document).map(Cow::Borrowed).map_err(|error| {
        let at = error.valid_up_to();
        Malformed::new(format!("the metalink is not in UTF-8 (byte {at}), and does not declare ISO-8859-1"))
    })
}

impl Document {
    fn take(&mut self, namespace: &ResolveResult<'_>, event: &Event<'_>) -> Result<(), Malformed> {
        match event {
            Event::Start(start) => self.start(namespace, start),
            Event::End(_) => self.end(),
            Event::Text(text) => self.add_text(&text.xml10_content()),
            Event::CData(text) => self.add_text(&text.xml10_content()),
            Event::GeneralRef(reference) => self.add_text(&self.resolve(reference)?),
            // It could define entities.
            Event::DocType(_) => {
                let why = "the metalink has a document type declaration (<!DOCTYPE>), which is not accepted";
                Err(Malformed::new(why))
            }
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::Eof => Ok(()),
        }
    }

    fn start(&mut self, namespace: &ResolveResult<'_>, start: &BytesStart<'_>) -> Result<(), Malformed> {
        let local = start.local_name();
        let version = Version::of(namespace);
        let Some(&parent) = self.open.last() else {
            if self.ended {
                return Err(self.syntax("a second root element"));
            }
            if version.is_none() || local.as_ref() != "metalink" {
                return Err(Malformed::new(NOT_METALINK));
            }
            self.version = version;
            self.open.push(Element::Metalink);
            return Ok(());
        };
        if parent.holds_text() {
            return Err(self.syntax(format!("<{}> within text", shown(local.as_ref()))));
        }
        if self.open.len() == MAX_DEPTH {
            return Err(too_many("nested elements", MAX_DEPTH));
        }
        let element = match version.filter(|_| version == self.version) {
            Some(version) => Element::child(version, parent, local.as_ref()),
            None => Element::Ignored,
        };
        let at = self.at;
        let attribute = |name: &str| attribute(start, name, at);
        match (element, &mut self.file) {
            (Element::File, _) => {
                if self.files.len() == MAX_FILES {
                    return Err(too_many("files", MAX_FILES));
                }
                self.file = Some(FileBuilder::new(&attribute("name")?.unwrap_or_default())?);
            }
            (Element::Hash, _) => self.attributes = [attribute("type")?, None],
            (Element::Pieces, Some(file)) => {
                file.begin_pieces(attribute("type")?, attribute("length")?)?;
            }
            (Element::Url, _) => {
                let priority = match version {
                    Some(Version::Three) => attribute("preference")?.as_deref().and_then(priority_of),
                    _ => attribute("priority")?,
                };
                self.attributes = [priority, attribute("location")?];
            }
            _ => {}
        }
        self.open.push(element);
        self.text.clear();
        Ok(())
    }

    fn end(&mut self) -> Result<(), Malformed> {
        let element = self.open.pop();
        self.ended = self.open.is_empty();
        let text = self.text.trim();
        let attributes = std::mem::take(&mut self.attributes);
        match (element, &mut self.file) {
            (Some(Element::Size), Some(file)) => file.size(text)?,
            (Some(Element::Hash), Some(file)) => file.hash(&attributes, text)?,
            (Some(Element::PieceHash), Some(file)) => file.piece(text)?,
            (Some(Element::Pieces), Some(file)) => file.end_pieces(),
            (Some(Element::Url), Some(file)) => file.url(attributes, text)?,
            (Some(Element::File), _) => {
                if let Some(file) = self.file.take() {
                    let file = file.finish()?;
                    let name = file.name.to_string();
                    if !self.names.insert(name.clone()) {
                        return Err(Malformed::new(format!("the metalink has two files named '{name}'")));
                    }
                    self.files.push(file);
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn add_text(&mut self, text: &str) -> Result<(), Malformed> {
        match self.open.last() {
            Some(element) if element.holds_text() => self.text.push_str(text),
            None if !text.trim().is_empty() => {
                return Err(self.syntax("text outside of the root element"));
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> Result<Metalink, Malformed> {
        if !self.open.is_empty() {
            return Err(Malformed::new(CUT_OFF));
        }
        if !self.ended {
            return Err(Malformed::new(NOT_METALINK));
        }
        if self.files.is_empty() {
            return Err(Malformed::new("the metalink names no file"));
        }
        Ok(Metalink { files: self.files })
    }

    /// Resolves a character reference or one of the five entities predefined in XML; without a DTD
    /// there are no others.
    fn resolve(&self, reference: &BytesRef<'_>) -> Result<String, Malformed> {
        let character = reference.resolve_char_ref().map_err(|error| self.syntax(error.to_string()))?;
        let entity = || quick_xml::escape::resolve_predefined_entity(reference).map(str::to_owned);
        let text = character.map(String::from).or_else(entity);
        text.ok_or_else(|| self.syntax(format!("the entity '{}' is not known", shown(reference))))
    }

    fn syntax(&self, why: impl fmt::Display) -> Malformed {
        syntax(self.at, why)
    }

    fn unreadable(&self, error: &quick_xml::Error) -> Malformed {
        match error {
            quick_xml::Error::Syntax(_) => Malformed::new(CUT_OFF),
            other => self.syntax(other.to_string().chars().take(200).collect::<String>()),
        }
    }
}

/// Creates the error of a document that is not well-formed XML.
fn syntax(at: u64, why: impl fmt::Display) -> Malformed {
    Malformed::new(format!("the metalink is not well-formed XML at byte {at}: {why}"))
}

/// Creates the error of more than `limit` items of one kind.
pub(super) fn too_many(what: &str, limit: usize) -> Malformed {
    Malformed::new(format!("the metalink has more than {limit} {what}"))
}

/// Returns the value of an attribute without a namespace prefix.
fn attribute(start: &BytesStart<'_>, name: &str, at: u64) -> Result<Option<String>, Malformed> {
    let wrong = |error: &dyn fmt::Display| syntax(at, format!("attribute '{name}': {error}"));
    let Some(attribute) = start.try_get_attribute(name).map_err(|error| wrong(&error))? else {
        return Ok(None);
    };
    let value = attribute.normalized_value(XmlVersion::Implicit1_0).map_err(|error| wrong(&error))?;
    Ok(Some(value.into_owned()))
}

/// Returns the priority of a URL of version 3, whose preference is from 1 to 100, the highest
/// first.
fn priority_of(preference: &str) -> Option<String> {
    let preference = preference.parse::<u32>().ok().filter(|preference| (1..=100).contains(preference));
    preference.map(|preference| (101 - preference).to_string())
}

/// Truncates text of the document for a message.
fn shown(text: &str) -> String {
    text.chars().take(40).flat_map(char::escape_debug).collect()
}
