//! Several tokens, each with a directory, rights and an expiry; a token for reading; files that are
//! deleted.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use longhaul_core::proto::http::UploadId;
use longhaul_core::units::Bytes;
use longhaul_server::{Config, Tokens};

use crate::site::{Answer, Site, wait_for};
use crate::uploads::{ID, Talk, content, head, names, patch, range, resource, with_field, writable_with};

const TOKENS: &str = r#"
    token = [
        { name = "ann", token = "anns", rights = ["read", "write", "delete"] },
        { name = "bob", token = "bobs", rights = ["read", "write", "delete"] },
        { name = "eve", token = "eves", rights = ["read", "write"], quota = "2MiB" },
        { name = "drop", token = "drops", rights = ["write"], directory = "/in" },
        { name = "old", token = "olds", rights = ["read", "write", "delete"], expires = 2020-01-01T00:00:00Z },
    ]
"#;

/// A writable server with [`TOKENS`], and the directory that holds their file.
fn site(change: impl FnOnce(&mut Config)) -> (Site, tempfile::TempDir) {
    let beside = tempfile::tempdir().unwrap();
    let path = beside.path().join("tokens");
    fs::write(&path, TOKENS).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    let site = Site::with(|config| {
        fs::create_dir(config.files.root.join("in")).unwrap();
        config.access.writable = true;
        config.access.tokens = Tokens::File(path);
        change(config);
    });
    (site, beside)
}

fn ask(site: &Site, token: &str, method: &str, target: &str, lines: &[&str], body: &str) -> Answer {
    let head = head(method, target, lines);
    let head =
        if body.is_empty() { head } else { with_field(&head, &format!("Content-Length: {}", body.len())) };
    send(site, token, &head, body)
}

/// Sends a request with this token.
fn send(site: &Site, token: &str, head: &str, body: &str) -> Answer {
    Talk::to(site).ask(&head.replace("s3cret", token), body.as_bytes())
}

fn put(site: &Site, token: &str, target: &str, body: &str) -> u16 {
    ask(site, token, "PUT", target, &[], body).status
}

/// Sends five of nine bytes of an upload.
fn begin(site: &Site, token: &str, target: &str) -> u16 {
    send(site, token, &patch(target, 0, 5, 9, false), "12345").status
}

#[test]
fn token_permits_its_rights_in_its_directory() {
    let (site, _beside) = site(|_| {});
    assert_eq!((put(&site, "drops", "/in/f", "first"), put(&site, "drops", "/f", "x")), (201, 403));
    assert_eq!(put(&site, "drops", "/in/f", "again"), 403, "without the right to delete nothing is replaced");
    assert_eq!(ask(&site, "drops", "DELETE", "/in/f", &[], "").status, 403);
    assert_eq!(ask(&site, "drops", "MKCOL", "/in/d", &[], "").status, 201);
    assert_eq!((put(&site, "olds", "/f", "x"), put(&site, "none", "/f", "x")), (401, 401));
    assert_eq!(put(&site, "anns", "/in/f", "other"), 204);
    assert_eq!(content(&site, "in/f"), b"other");
    assert_eq!(site.get("/in/f", &[]).body, "other", "reading needs no token");
    assert_eq!(put(&site, "anns", "/f", "content"), 201);
    let delete = |target: &str, lines: &[&str]| ask(&site, "bobs", "DELETE", target, lines, "").status;
    assert_eq!((delete("/none", &[]), delete("/in", &[]), delete("/../f", &[])), (404, 409, 403));
    assert_eq!(delete("/f", &["If-Match: \"other\""]), 412);
    assert_eq!(names(&site), ["f", "in"]);
    assert_eq!((delete("/f", &[]), delete("/f", &[])), (204, 404));
    assert_eq!(names(&site), ["in"]);
}

#[test]
fn reading_may_need_a_token() {
    let (site, _beside) = site(|config| config.access.require_token = true);
    site.write("f", b"content");
    for target in ["/f", "/", "/none"] {
        let refused = site.get(target, &[]);
        assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")), "{target}");
        assert_eq!(site.get(target, &["Authorization: Bearer olds"]).status, 401, "{target}");
        assert_eq!(site.get(target, &["Authorization: Bearer drops"]).status, 403, "{target}");
    }
    assert_eq!(site.get("/f", &["Authorization: Bearer anns"]).body, "content");
    assert_eq!(site.get("/", &["Authorization: Bearer anns"]).status, 200);
}

#[test]
fn paused_upload_of_another_token_is_neither_seen_nor_restarted() {
    let (site, _beside) = site(|_| {});
    let url = resource("f", ID);
    let other = resource("f", UploadId::new([1; 16]));
    assert_eq!(begin(&site, "anns", &url), 204);
    let kept = content(&site, "f.longhaul-journal");
    let status = |token: &str| ask(&site, token, "HEAD", &url, &[], "");
    // The same ID names another upload for another token.
    for target in [&url, &other] {
        assert_eq!((begin(&site, "eves", target), begin(&site, "bobs", target)), (423, 423), "{target}");
    }
    assert_eq!((put(&site, "eves", "/f", "x"), put(&site, "bobs", "/f", "x")), (423, 423));
    assert_eq!(status("bobs").status, 404);
    assert_eq!((status("eves").status, ask(&site, "eves", "DELETE", &url, &[], "").status), (404, 404));
    for token in ["eves", "bobs"] {
        assert_eq!(send(&site, token, &range(&url, 5..9, 9), "6789").status, 423);
    }
    assert_eq!(content(&site, "f.longhaul-journal"), kept);
    let mine = status("anns");
    assert_eq!((mine.status, mine.header("upload-offset")), (204, Some("5")));
    // The token's own holder may start over with another ID.
    assert_eq!(begin(&site, "anns", &other), 204);
    assert_eq!(status("anns").status, 404);
}

#[test]
fn ranges_of_two_tokens_do_not_mix() {
    let (site, _beside) = site(|_| {});
    let url = resource("f", ID);
    for (token, bytes, status) in [("anns", 0..5, 202), ("bobs", 5..9, 423), ("anns", 5..9, 202)] {
        let answer = send(&site, token, &range(&url, bytes.clone(), 9), &"123456789"[bytes.clone()]);
        assert_eq!(answer.status, status, "{token} {bytes:?}");
    }
    assert_eq!(send(&site, "anns", &patch(&url, 9, 0, 9, true), "").status, 201);
    assert_eq!(content(&site, "f"), b"123456789");
}

#[test]
fn one_token_writes_over_uploads_of_every_token() {
    let (site, _beside) = site(|_| {});
    assert_eq!(begin(&site, "anns", &resource("f", ID)), 204);
    let single = writable_with(|config| config.files.root = site.dir.path().to_owned());
    assert_eq!(put(&single, "s3cret", "/f", "whole"), 201);
    assert_eq!(names(&site), ["f", "in"]);
}

#[test]
fn paused_uploads_are_listed_for_their_token() {
    let (site, _beside) = site(|config| config.limits.uploads.expiry = Some(Duration::from_secs(3600)));
    let [f, g] = ["f", "g"].map(|name| resource(name, ID));
    assert_eq!((begin(&site, "eves", &f), begin(&site, "bobs", &g)), (204, 204));
    let list = |token: &str, target: &str| ask(&site, token, "GET", target, &[], "");
    let listing: serde_json::Value = serde_json::from_str(&list("eves", "/?uploads").body).unwrap();
    let [upload] = listing["uploads"].as_array().unwrap().as_slice() else { panic!("{listing}") };
    assert_eq!((&upload["name"], &upload["token"]), (&"f".into(), &"eve".into()), "{listing}");
    assert_eq!((&upload["size"], &upload["received"]), (&9.into(), &5.into()), "{listing}");
    assert!(upload["expires"].is_string() && listing["used"] == 1 << 20, "{listing}");
    fs::create_dir(site.dir.path().join(".private")).unwrap();
    for (token, target, status) in [
        ("drops", "/?uploads", 403),
        ("none", "/?uploads", 401),
        ("drops", "/in/?uploads", 200),
        ("anns", "/none/?uploads", 409),
        ("anns", "/.private/?uploads", 409),
    ] {
        assert_eq!(list(token, target).status, status, "{token} {target}");
    }
}

#[test]
fn token_with_the_right_to_delete_administers_the_uploads_of_all() {
    let (site, beside) = site(|_| {});
    let [f, g, h, i] = ["f", "g", "h", "i"].map(|name| resource(name, ID));
    assert_eq!((begin(&site, "eves", &f), begin(&site, "bobs", &g)), (204, 204));
    assert_eq!((begin(&site, "bobs", &h), begin(&site, "bobs", &i)), (204, 204));
    let left = || names(&site).into_iter().filter(|name| name.ends_with("part")).collect::<Vec<_>>();
    // A token that is gone leaves its uploads.
    let gone = TOKENS.replace("name = \"bob\"", "name = \"new\"").replace("bobs", "news");
    fs::write(beside.path().join("tokens"), gone).unwrap();
    wait_for(|| put(&site, "news", "/in/f", "x") == 201);
    let listing = ask(&site, "anns", "GET", "/?uploads", &[], "").body;
    let listing: serde_json::Value = serde_json::from_str(&listing).unwrap();
    let uploads = listing["uploads"].as_array().unwrap();
    let tokens: Vec<_> = uploads.iter().map(|upload| upload["token"].as_str().unwrap()).collect();
    assert_eq!(tokens, ["eve", "bob", "bob", "bob"], "{listing}");
    let id = |at: usize| uploads[at]["id"].as_str().unwrap();
    let delete = |token: &str, target: &str| ask(&site, token, "DELETE", target, &[], "").status;
    // By the ID of the listing, with the right; a token without it can delete only its own.
    let listed = format!("/g?upload={}", id(1));
    assert_eq!((delete("eves", &listed), delete("drops", &listed)), (404, 403));
    assert_eq!((delete("anns", &listed), delete("anns", &listed)), (204, 404));
    assert_eq!(delete("eves", &format!("/f?upload={}", id(0))), 204);
    // By the ID of the client that began it.
    assert_eq!(delete("anns", &h), 204);
    assert_eq!(left(), ["i.longhaul-part"]);
    // Not by an upload of the same name, which may mean another file.
    assert_eq!((begin(&site, "anns", &i), put(&site, "news", "/i", "whole")), (423, 423));
    assert_eq!((delete("anns", &i), put(&site, "news", "/i", "whole")), (204, 201));
    assert!(left().is_empty() && content(&site, "i") == b"whole");
}

#[test]
fn quotas_of_a_token_and_of_all_are_kept() {
    let (site, _beside) = site(|config| config.limits.uploads.quota = Some(Bytes::mib(4)));
    let [f, g, h] = ["f", "g", "h"].map(|name| resource(name, ID));
    assert_eq!((begin(&site, "eves", &f), begin(&site, "anns", &h)), (204, 204));
    assert_eq!(begin(&site, "eves", &f), 409, "what is there stays, and counts");
    let refused = send(&site, "eves", &head("PUT", "/g", &["Content-Length: 1048577"]), "");
    assert!(refused.status == 507 && refused.body.contains("of this token"), "{refused:?}");
    let refused = send(&site, "anns", &head("PUT", "/g", &["Content-Length: 2097153"]), "");
    assert!(refused.status == 507 && refused.body.contains("of all tokens"), "{refused:?}");
    // A small file counts until it is complete.
    assert_eq!((put(&site, "eves", "/i", "small"), begin(&site, "eves", &g)), (201, 204));
    assert_eq!(put(&site, "eves", "/j", "small"), 507);
    assert!(!names(&site).iter().any(|name| name.starts_with('j')));
    // A dropped upload counts no more.
    assert_eq!(ask(&site, "eves", "DELETE", &g, &[], "").status, 204);
    assert_eq!(put(&site, "eves", "/j", "small"), 201);
}

#[test]
fn slow_uploads_of_one_token_leave_places_to_others() {
    let (site, _beside) = site(|config| config.limits.uploads.per_disk = 4);
    let mut slow: Vec<_> = (0..6).map(|_| Talk::to(&site)).collect();
    let begun = slow.iter_mut().enumerate().filter_map(|(number, talk)| {
        let fields = ["Content-Length: 10", "Expect: 100-continue"];
        let head = head("PUT", &format!("/in/{number}"), &fields).replace("s3cret", "drops");
        talk.send(&head, b"");
        (talk.answer_head().status == 100).then_some(())
    });
    assert_eq!(begun.count(), 2);
    assert_eq!(put(&site, "anns", "/f", "x"), 201);
    let refused = ask(&site, "drops", "PUT", "/in/f", &[], "x");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
}

#[test]
fn paused_upload_expires() {
    let (site, _beside) = site(|config| config.limits.uploads.expiry = Some(Duration::from_secs(1)));
    let url = resource("f", ID);
    assert_eq!(begin(&site, "anns", &url), 204);
    wait_for(|| names(&site) == ["in"]);
    assert_eq!(ask(&site, "anns", "HEAD", &url, &[], "").status, 404);
}
