use super::*;

const SHA1: &str = "a9993e364706816aba3e25717850c26c9cd0d89d";
const SHA256: &str = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";

/// Wraps files in a document.
fn document(files: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>\n"
    )
}

fn parse(files: &str) -> Result<Metalink, Malformed> {
    Metalink::parse(document(files).as_bytes())
}

/// Parses a document with one file of this content.
#[track_caller]
fn file(content: &str) -> MetalinkFile {
    parse(&format!("<file name=\"f\">{content}</file>")).unwrap().files.remove(0)
}

#[track_caller]
fn wrong(content: &str, words: &str) {
    let error = parse(&format!("<file name=\"f\">{content}</file>")).unwrap_err().to_string();
    assert!(error.contains(words), "{error}");
}

/// The example of RFC 5854, section 1.1, with pieces.
fn whole() -> String {
    document(&format!(
        "<published>2009-05-15T12:23:23Z</published>
         <file name=\"example.ext\">
           <size>14471447</size>
           <identity>Example</identity><version>1.0</version><language>en</language>
           <description>A description &amp; more.</description>
           <hash type=\"sha-1\">{SHA1}</hash>
           <hash type=\"sha-256\">\n {SHA256}\n</hash>
           <hash type=\"sha3-256\">of an unknown algorithm</hash>
           <pieces length=\"8388608\" type=\"sha-1\"><hash>{SHA1}</hash><hash>{SHA1}</hash></pieces>
           <url location=\"de\" priority=\"2\">ftp://ftp.example.com/example.ext</url>
           <url priority=\"1\" location=\"FR\">http://example.com/example.ext?a=1&amp;b=&#50;</url>
           <url>https://example.net/example.ext</url>
           <metaurl mediatype=\"torrent\" priority=\"2\">http://example.com/example.ext.torrent</metaurl>
         </file>"
    ))
}

#[test]
fn example_of_rfc_5854_is_parsed_and_an_empty_file_too() {
    let metalink = Metalink::parse(whole().as_bytes()).unwrap();
    let [file] = metalink.files.as_slice() else { panic!("{metalink:?}") };
    assert_eq!((file.name.to_string().as_str(), file.size), ("example.ext", Some(Bytes::new(14_471_447))));
    assert_eq!(file.best_checksum().unwrap().to_string(), format!("sha256:{}", SHA256.to_ascii_lowercase()));
    assert_eq!(file.checksums.len(), 2);
    let pieces = file.pieces.as_ref().unwrap();
    assert_eq!((pieces.length, pieces.algorithm, pieces.digests.len()), (Bytes::mib(8), Algorithm::Sha1, 2));
    let sources = file.sources.iter().map(|s| (s.url.as_str(), s.priority, s.location.as_deref()));
    let expected = [
        ("http://example.com/example.ext?a=1&b=2", 1, Some("fr")),
        ("ftp://ftp.example.com/example.ext", 2, Some("de")),
        ("https://example.net/example.ext", LOWEST_PRIORITY, None),
    ];
    assert!(sources.eq(expected), "{:?}", file.sources);
    // Missing sizes, hashes and URLs are not errors.
    let empty = self::file("");
    assert_eq!((empty.size, empty.best_checksum(), empty.pieces.as_ref()), (None, None, None));
    assert!(empty.sources.is_empty());
}

/// As mirrors.fedoraproject.org sends it.
#[test]
fn version_3_is_parsed() {
    let text = format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>
         <metalink version=\"3.0\" xmlns=\"http://www.metalinker.org/\" type=\"dynamic\"
             xmlns:mm0=\"http://fedorahosted.org/mirrormanager\">
          <files><file name=\"repomd.xml\">
           <mm0:timestamp>1700000000</mm0:timestamp><size>3</size>
           <verification><hash type=\"md5\">900150983cd24fb0d6963f7d28e17f72</hash><hash type=\"sha256\">{SHA256}</hash>
            <pieces length=\"3\" type=\"sha1\"><hash piece=\"0\">{SHA1}</hash></pieces></verification>
           <mm0:alternates><mm0:alternate><size>4</size></mm0:alternate></mm0:alternates>
           <resources maxconnections=\"1\">
            <url protocol=\"rsync\" type=\"rsync\" location=\"DE\" preference=\"99\">rsync://a/repomd.xml</url>
            <url type=\"http\">http://c/repomd.xml</url>
            <url protocol=\"https\" type=\"https\" location=\"DE\" preference=\"100\">https://b/repomd.xml</url>
           </resources></file></files></metalink>"
    );
    let metalink = Metalink::parse(text.as_bytes()).unwrap();
    let [file] = metalink.files.as_slice() else { panic!("{metalink:?}") };
    assert_eq!((file.name.to_string().as_str(), file.size), ("repomd.xml", Some(Bytes::new(3))));
    assert_eq!((file.checksums.len(), file.pieces.as_ref().unwrap().digests.len()), (2, 1));
    assert_eq!(file.best_checksum().unwrap().to_string(), format!("sha256:{}", SHA256.to_ascii_lowercase()));
    let sources: Vec<_> = file.sources.iter().map(|source| (source.url.as_str(), source.priority)).collect();
    let expected =
        [("https://b/repomd.xml", 1), ("rsync://a/repomd.xml", 2), ("http://c/repomd.xml", LOWEST_PRIORITY)];
    assert_eq!(sources, expected);
    // The elements of one version are none of the other.
    for (from, to) in [("<files>", "<x>"), ("<resources ", "<x "), ("<verification>", "<x>")] {
        let changed = text.replace(from, to).replace(&from.replace('<', "</").replace(' ', ">"), "</x>");
        let found = Metalink::parse(changed.as_bytes()).map(|metalink| metalink.files[0].clone());
        assert!(found.is_err() || found.is_ok_and(|found| found != *file), "{from}");
    }
}

#[test]
fn names_stay_below_the_target_directory_and_differ() {
    let name = |name: &str| {
        let name = name.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;");
        parse(&format!("<file name=\"{name}\"/>")).map(|metalink| metalink.files[0].name.clone())
    };
    let plain = name("a b/ü/c.tar.gz").unwrap();
    assert_eq!((plain.components().len(), plain.to_string().as_str()), (3, "a b/ü/c.tar.gz"));
    assert_eq!(name(".ssh/-rf").unwrap().to_string(), "_.ssh/_-rf");
    assert_eq!(name("_a").unwrap().to_string(), "_a");
    let deep = "a/".repeat(20) + "f";
    let short = "|.|..|../f|a/../f|a/..|./f|/etc/passwd|//f|a//f|a/|a\\f|..\\f|a\u{1b}[31m|a\u{202e}f";
    for hostile in short.split('|').chain([&deep[..], &"f".repeat(300)]) {
        assert!(name(hostile).is_err(), "{hostile}");
    }
    for escaped in ["a&#10;b", "&#x2e;&#x2e;/f", "&#0;f", "a&#x1b;"] {
        assert!(parse(&format!("<file name=\"{escaped}\"/>")).is_err(), "{escaped}");
    }
    let nameless = parse("<file><size>1</size></file>");
    assert!(nameless.is_err_and(|error| error.to_string().contains("file name ''")));
    let two = parse("<file name=\"a\"/><file name=\"b\"/><file name=\"a\"/>");
    assert!(two.is_err_and(|error| error.to_string().contains("two files named 'a'")));
    // Both are stored as "_-a".
    assert!(parse("<file name=\"-a\"/><file name=\"_-a\"/>").is_err());
    assert_eq!(parse("<file name=\"a/f\"/><file name=\"b/f\"/>").unwrap().files.len(), 2);
}

#[test]
fn impossible_sizes_and_malformed_hashes_are_refused() {
    for size in ["-1", "+1", "", "1.5", "0x10", "9223372036854775808", "99999999999999999999999", "1 2"] {
        wrong(&format!("<size>{size}</size>"), "<size> of 'f'");
    }
    wrong("<size>1</size><size>2</size>", "differ");
    assert_eq!(file("<size> 0 </size><size>0</size>").size, Some(Bytes::ZERO));
    wrong("<hash type=\"sha-256\">abc</hash>", "sha256 digest");
    wrong(&format!("<hash type=\"md5\">{SHA1}</hash>"), "md5 digest");
    let zeros = "0".repeat(40);
    wrong(&format!("<hash type=\"sha-1\">{SHA1}</hash><hash type=\"sha-1\">{zeros}</hash>"), "differ");
    assert!(file(&format!("<hash>{SHA1}</hash><hash type=\"tiger\">x</hash>")).checksums.is_empty());
}

#[test]
fn pieces_agree_with_the_size() {
    let pieces = |size: u64, count: usize| {
        let hashes = format!("<hash>{SHA1}</hash>").repeat(count);
        format!("<size>{size}</size><pieces length=\"10\" type=\"sha-1\">{hashes}</pieces>")
    };
    let count = |size, count| file(&pieces(size, count)).pieces.map(|pieces| pieces.digests.len());
    assert_eq!([count(20, 2), count(21, 3), count(0, 0)], [Some(2), Some(3), None]);
    for (size, count) in [(20, 1), (20, 3), (0, 1), (1, 0), (u64::MAX >> 1, 2)] {
        wrong(&pieces(size, count), "pieces");
    }
    for length in ["length=\"0\"", "length=\"-1\"", "", "length=\"18446744073709551616\""] {
        wrong(&format!("<pieces {length} type=\"sha-1\"><hash>{SHA1}</hash></pieces>"), "length");
    }
    wrong("<pieces length=\"1\" type=\"sha-1\"><hash>00</hash></pieces>", "sha1 digest");
    // Of several lists, the one with the preferred algorithm counts; unknown algorithms are
    // ignored.
    let three = format!(
        "<pieces length=\"1\" type=\"sha-1\"><hash>{SHA1}</hash></pieces>
         <pieces length=\"2\" type=\"sha-256\"><hash>{SHA256}</hash></pieces>
         <pieces length=\"3\" type=\"crc32\"><hash>00000000</hash></pieces>"
    );
    assert_eq!(file(&three).pieces.unwrap().algorithm, Algorithm::Sha256);
}

#[test]
fn urls_of_any_scheme_are_kept_once() {
    let content = "<url priority=\"0\">magnet:?xt=x</url><url priority=\"7\">file:///etc/passwd</url>\
        <url priority=\"x\" location=\"Germany\">http://h/f</url><url priority=\"3\">http://h/f</url>";
    let sources = file(content).sources;
    let urls: Vec<_> = sources.iter().map(|s| (s.url.as_str(), s.priority)).collect();
    assert_eq!(urls, [("http://h/f", 3), ("file:///etc/passwd", 7), ("magnet:?xt=x", LOWEST_PRIORITY)]);
    // A malformed one costs no other.
    for url in ["", "  ", "http://h/a b", "http://h/&#13;&#10;Host:x", "http://h/\u{85}f"] {
        let sources = file(&format!("<url>{url}</url><url>http://h/f</url>")).sources;
        assert_eq!((sources.len(), sources[0].url.as_str()), (1, "http://h/f"), "{url:?}");
    }
}

#[test]
fn elements_of_other_namespaces_are_ignored() {
    let content = "<x:url xmlns:x=\"urn:x\">http://evil/</x:url><url xmlns=\"urn:y\">http://evil/</url>\
        <x:extra xmlns:x=\"urn:x\"><url>http://evil/</url></x:extra><description><url>http://evil/</url></description>\
        <url xmlns:x=\"urn:x\" x:priority=\"1\">http://h/f</url>";
    let sources = file(content).sources;
    assert_eq!((sources.len(), &sources[0].url[..]), (1, "http://h/f"));
    assert_eq!(sources[0].priority, LOWEST_PRIORITY);
    let prefixed = "<m:metalink xmlns:m=\"urn:ietf:params:xml:ns:metalink\" xmlns=\"urn:x\">\
        <m:file name=\"f\"><m:url>http://h/f</m:url><url>http://evil/</url></m:file><file name=\"g\"/></m:metalink>";
    let metalink = Metalink::parse(prefixed.as_bytes()).unwrap();
    assert_eq!((metalink.files.len(), metalink.files[0].sources.len()), (1, 1));
}

#[test]
fn other_and_truncated_documents_are_identified() {
    let read = |text: &str| Metalink::parse(text.as_bytes()).unwrap_err().to_string();
    for other in ["", "<html><body>404</body></html>", "<metalink><file name=\"f\"/></metalink>"] {
        assert!(read(other).starts_with("this is not a Metalink document"), "{other}");
    }
    let version_3 = "<metalink xmlns=\"http://www.metalinker.org/\"><files/></metalink>";
    assert_eq!([version_3, &document("")].map(read), ["the metalink names no file"; 2]);
    for malformed in [
        "\0\u{1}garbage".to_owned(),
        document("<file name=\"a\"/>") + &document(""),
        document("<file name=\"f\"><url>a<b/>c</url></file>"),
        document("<file name=\"f\"></url></file>"),
    ] {
        assert!(read(&malformed).contains("not well-formed XML at byte"), "{malformed}");
    }
    let other = Metalink::parse(b"<metalink \xff").unwrap_err().to_string();
    assert!(other.contains("not in UTF-8 (byte 10)"), "{other}");
    for (declared, is_read) in [("iso-8859-1", true), ("UTF-8", false)] {
        let text = document("<file name=\"\u{1}\"/>").replace("UTF-8", declared);
        let latin: Vec<_> = text.bytes().map(|byte| if byte == 1 { 0xfc } else { byte }).collect();
        let names = Metalink::parse(&latin).map(|metalink| metalink.files[0].name.to_string());
        assert_eq!(names.ok(), is_read.then(|| "ü".to_owned()), "{declared}");
    }
    let wide = "<?xml version=\"1.0\" encoding=\"UTF-16\"?>".encode_utf16().flat_map(u16::to_le_bytes);
    assert!(Metalink::parse(&wide.collect::<Vec<_>>()).is_err());
    let whole = whole();
    for cut in 0..whole.trim_end().len() {
        assert!(Metalink::parse(&whole.as_bytes()[..cut]).is_err(), "{cut}");
    }
}

#[test]
fn excessive_documents_are_refused() {
    let large = vec![b' '; MAX_DOCUMENT.as_usize() + 1];
    let refused = |result: Result<Metalink, Malformed>, why: &str| {
        assert!(result.unwrap_err().to_string().contains(why), "{why}");
    };
    refused(Metalink::parse(&large), "larger than 16 MiB");
    refused(parse(&"<a>".repeat(100_000)), "more than 64 nested elements");
    let namespaces: String = (0..10_000).map(|n| format!(" xmlns:n{n}=\"urn:{n}\"")).collect();
    assert!(parse(&format!("<file name=\"f\"{namespaces}/>")).is_err());
    let urls = |count: usize| (0..count).map(|n| format!("<url>http://h/{n}</url>")).collect::<String>();
    assert_eq!(file(&urls(MAX_URLS)).sources.len(), MAX_URLS);
    wrong(&urls(MAX_URLS + 1), "more than 10000 URLs");
    let files: String = (0..=MAX_FILES).map(|n| format!("<file name=\"{n}\"/>")).collect();
    refused(parse(&files), "more than 10000 files");
    let bomb = "<!DOCTYPE m [<!ENTITY a \"aaaaaaaaaa\"><!ENTITY b \"&a;&a;&a;&a;&a;&a;&a;&a;\">]>\
        <metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><url>&b;</url></file></metalink>";
    refused(Metalink::parse(bomb.as_bytes()), "<!DOCTYPE>");
    wrong("<url>http://h/&b;</url>", "entity 'b'");
    assert!(parse("<file name=\"&b;\"/>").is_err());
}
