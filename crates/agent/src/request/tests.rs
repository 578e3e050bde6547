use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use longhaul_core::units::Bytes;

use super::*;

fn request(json: &str) -> TransferRequest {
    serde_json::from_str(json).unwrap()
}

#[test]
fn output_is_made_absolute_and_stays_a_directory() {
    let output =
        |json: &str| request(json).normalised(Path::new("/d")).unwrap()[0].target.output.clone().unwrap();
    assert_eq!(output(r#"{"urls": ["http://h/a"]}"#).as_os_str(), "/d/");
    assert_eq!(output(r#"{"urls": ["http://h/a"], "output": "f"}"#).as_os_str(), "/d/f");
    assert_eq!(output(r#"{"urls": ["http://h/a"], "output": "/o/"}"#).as_os_str(), "/o/");
    assert_eq!(output(r#"{"kind": "tree", "urls": ["http://h/a/"], "output": "/o"}"#).as_os_str(), "/o");
}

#[test]
fn invalid_request_is_refused_with_a_reason_and_without_secrets() {
    for (json, why) in [
        (r#"{"urls": []}"#, "no URL"),
        (r#"{"urls": ["no url"]}"#, "no URL"),
        (r#"{"urls": ["file:///etc/passwd"]}"#, "cannot be transferred"),
        (r#"{"urls": ["mailto:a@b"]}"#, "cannot be transferred"),
        (r#"{"urls": ["http://h/"], "checksum": "md5:12"}"#, "checksum"),
        (r#"{"urls": ["http://h/"], "headers": ["secret"]}"#, "header"),
        (r#"{"urls": ["http://h/"], "cookies": "a\r\nb"}"#, "Cookie"),
        (r#"{"urls": ["http://h/"], "user_agent": "secret\nb"}"#, "User-Agent"),
        (r#"{"urls": ["http://h/"], "token": "secret\nb"}"#, "token"),
        (r#"{"urls": ["http://[fe80::1%25none]/"]}"#, "interface"),
        (r#"{"urls": ["http://h/"], "pace": "fast"}"#, "pace"),
        (r#"{"urls": ["http://h/"], "streams": 0}"#, "streams"),
        (r#"{"urls": ["http://h/"], "name": "../a"}"#, "name"),
        (r#"{"urls": ["http://h/"], "limit_bps": 1}"#, "8 bit/s"),
        (r#"{"urls": ["http://h/"], "priority": -9223372036854775808}"#, "priority"),
        (r#"{"urls": ["http://h/"], "priority": 1000001}"#, "priority"),
        (r#"{"kind": "put", "paths": ["/nonexistent"], "url": "http://h/"}"#, "/nonexistent"),
        (r#"{"kind": "put", "paths": ["a"], "url": "http://h/"}"#, "absolute"),
        (r#"{"kind": "put", "url": "http://h/"}"#, "paths"),
        (r#"{"kind": "put", "paths": ["/etc/passwd"]}"#, "URL"),
        (r#"{"kind": "tree", "urls": ["http://h/a", "http://h/b"]}"#, "one URL"),
        (r#"{"kind": "plan"}"#, "absolute path of the plan"),
        (r#"{"plan": "p"}"#, "absolute path of the plan"),
        (r#"{"plan": "/p", "urls": ["http://h/"]}"#, "name the plan alone"),
        (r#"{"plan": "/p", "output": "/o"}"#, "name the plan alone"),
    ] {
        let error = request(json).normalised(Path::new("/d")).unwrap_err().to_string();
        assert!(error.contains(why) && !error.contains("secret"), "{json}: {error}");
    }
    assert!(serde_json::from_str::<TransferRequest>(r#"{"streams": "many"}"#).is_err());
}

#[test]
fn groups_are_one_flat_object_that_refuses_unknown_and_repeated_fields() {
    let default = concat!(
        r#"{"kind":"get","urls":[],"url":null,"paths":[],"output":null,"name":null,"if_exists":null,"checksum":null,"#,
        r#""headers":[],"cookies":null,"user_agent":null,"referrer":null,"allow_cleartext":false,"location_trusted":false,"#,
        r#""token":null,"streams":"auto","pace":null,"writer":"auto","limit_bps":null,"priority":0,"page_url":null,"at":null,"#,
        r#""paused":false,"assume_unchanged":false,"key":null}"#,
    );
    let full = concat!(
        r#"{"kind":"tree","urls":["u"],"url":"t","paths":["p"],"output":"o","name":"n","if_exists":"fail","checksum":"c","#,
        r#""headers":["h"],"cookies":"k","user_agent":"a","referrer":"r","allow_cleartext":true,"location_trusted":true,"#,
        r#""token":"s","streams":3,"pace":"off","writer":"mmap","limit_bps":8,"priority":-1,"page_url":"w","at":-2,"#,
        r#""paused":true,"assume_unchanged":true,"key":"y","metalink":{"size":1,"piece_length":null,"pieces":[]}}"#,
    );
    assert_eq!(crate::json(&TransferRequest::default()), default);
    for json in ["{}", default, full] {
        assert_eq!(crate::json(&request(json)), if json == "{}" { default } else { json });
        let offer = |text: &str| serde_json::from_str::<crate::offer::Offer>(text);
        assert!(offer(&json.replacen('{', r#"{"size":1,"#, 1).replace(",}", "}")).is_ok(), "{json}");
    }
    // Words that are names of groups, too.
    for field in ["colour", "endpoints", "target", "access", "tuning", "queue", "gid", "size", "Urls"] {
        for json in [format!(r#"{{"{field}": 1}}"#), full.replacen('{', &format!(r#"{{"{field}":null,"#), 1)]
        {
            let error = serde_json::from_str::<TransferRequest>(&json).unwrap_err().to_string();
            assert!(error.starts_with(&format!("unknown field `{field}`")), "{error}");
        }
    }
    for (name, value) in serde_json::from_str::<serde_json::Map<_, _>>(full).unwrap() {
        let twice = format!(r#"{{"{name}": {value}, "{name}": {value}}}"#);
        assert!(serde_json::from_str::<TransferRequest>(&twice).is_err(), "{twice}");
    }
}

#[test]
fn zones_stay_with_their_transfer_and_are_not_shown() {
    let address: Ipv6Addr = "fe80::7".parse().unwrap();
    let added = |json: &str| request(json).normalised(Path::new("/d")).map(|mut added| added.swap_remove(0));
    for (json, zone, stored, name) in [
        (r#"{"urls": [" http://[fe80::7%2577]/a "]}"#, 77, "http://[fe80::7%2577]/a", "a"),
        (r#"{"urls": ["http://[FE80:0::7%78]:80/b"]}"#, 78, "http://[FE80:0::7%78]/b", "b"),
        (r#"{"urls": ["http://u:[p]@[fe80::7%79]/[c]"]}"#, 79, "http://u:%5Bp%5D@[fe80::7%79]/[c]", "[c]"),
        (
            r#"{"paths": ["/etc/passwd"], "url": "ftp://[fe80::7%2580]/d/"}"#,
            80,
            "ftp://[fe80::7%2580]/d/passwd",
            "passwd",
        ),
    ] {
        // As the database keeps it.
        let kept = request(&crate::json(&added(json).unwrap()));
        assert_eq!(kept.endpoints.urls.iter().chain(&kept.endpoints.url).collect::<Vec<_>>(), [stored]);
        assert_eq!(kept.client().unwrap().addresses.zones, BTreeMap::from([(address, zone)]), "{json}");
        assert!(!kept.shown_urls()[0].contains('%'), "{:?}", kept.shown_urls());
        assert_eq!(kept.shown_name(), name);
    }
    // The interface of a stored transfer may be gone: it does not run, and is shown as before.
    let mut gone = request(r#"{"urls": ["http://[fe80::7%25gone]/a.iso"]}"#);
    assert!(gone.client().unwrap_err().to_string().contains("no interface 'gone'"));
    assert_eq!(
        (gone.shown_urls(), gone.shown_name()),
        (vec!["http://[fe80::7]/a.iso".into()], "a.iso".into())
    );
    assert!(gone.refresh("http://[fe80::7%25gone]/b.iso", None).is_err());
    gone.access.token = Some("t".to_owned());
    gone.refresh("http://[fe80::7%2577]/a.iso", None).unwrap();
    assert_eq!(gone.access.token, None, "another zone is another server");
    let two = added(r#"{"urls": ["http://[fe80::7%2577]/a", "http://[fe80::7%2578]/a"]}"#);
    assert!(two.unwrap_err().to_string().contains("two zones"));
}

#[test]
fn shown_urls_and_pages_contain_no_secret() {
    let given = request(r#"{"urls": ["https://u:secret@h/a%20b.tar?key=secret", "http://m/b"]}"#);
    let shown = given.shown_urls();
    assert_eq!(shown.len(), 2);
    assert!(!shown.join(" ").contains("secret"), "{shown:?}");
    assert_eq!(given.shown_name(), "a b.tar");
    let page = |url: &str| request(&format!(r#"{{"page_url": "{url}"}}"#)).shown_page();
    assert_eq!(page("https://u:secret@h/p?key=secret#secret").unwrap(), "https://h/p");
    assert_eq!(page("javascript:alert(1)"), None);
    assert_eq!(page("no url"), None);
}

#[test]
fn lines_and_metalinks_are_requests() {
    let requests = of_text("# files\n\nhttp://h/a\n  https://h/b?x=1 \r\n").unwrap();
    assert!(requests.iter().map(|request| &*request.endpoints.urls[0]).eq(["http://h/a", "https://h/b?x=1"]));
    assert!(of_text("http://h/a\nsecret").unwrap_err().to_string().starts_with("line 2:"));
    assert!(of_text("\n#").is_err());
    let hex = "a".repeat(64);
    let text = format!(
        r#"<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="f.iso"><size>10</size><hash type="sha-256">{hex}</hash>
        <pieces type="sha-256" length="6"><hash>{hex}</hash><hash>{hex}</hash></pieces>
        <url>http://one/f</url><url>http://two/f</url><url>bogus</url></file></metalink>"#
    );
    let requests = of_metalink(text.as_bytes()).unwrap();
    let stored = request(&crate::json(&requests[0]));
    assert_eq!(stored, requests[0]);
    assert_eq!((stored.endpoints.urls.len(), stored.target.name.as_deref()), (2, Some("f.iso")));
    let facts = stored.metalink.unwrap();
    assert_eq!((facts.size, facts.pieces().unwrap().digests.len()), (Some(Bytes::new(10)), 2));
    assert!(of_metalink(b"<nothing/>").is_err());
}

#[test]
fn refreshed_link_replaces_the_first_url_and_another_server_gets_no_secrets() {
    let mut given = request(r#"{"urls": ["http://h/a?old", "http://m/a"], "headers": ["A: 1"]}"#);
    given.refresh("http://h/a?new", None).unwrap();
    assert_eq!(given.endpoints.urls, ["http://h/a?new", "http://m/a"]);
    assert!(given.refresh("nonsense", None).is_err());
    let given = request(
        r#"{"urls": ["https://h/a"], "headers": ["A: 1"], "token": "t", "cookies": "c=1", "referrer": "https://p/"}"#,
    );
    let refreshed = |url: &str, headers: Option<Vec<String>>| {
        let mut given = given.clone();
        given.refresh(url, headers).unwrap();
        given
    };
    let same = refreshed("https://h:443/b", None);
    assert_eq!(same.access, given.access);
    for elsewhere in ["https://other/b", "http://h/b", "https://h:8443/b", "gsiftp://h/b"] {
        assert_eq!(refreshed(elsewhere, None).access, AccessOptions::default(), "{elsewhere}");
    }
    let headers = vec!["B: 2".to_owned()];
    let fresh = refreshed("https://h/b", Some(headers.clone()));
    assert_eq!(fresh.access, AccessOptions { headers, ..AccessOptions::default() });
}
