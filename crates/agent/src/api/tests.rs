use std::collections::BTreeSet;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::runner::tests::queue;

struct Api {
    dir: tempfile::TempDir,
    state: ApiState,
}

const TOKEN: &str = "the-token";
const HOST: &str = "127.0.0.1:6777";
const TRANSFERS: &str = "/api/v1/transfers";

fn api() -> Api {
    let (dir, queue) = queue();
    let access =
        Arc::new(ApiAccess::new(TOKEN.to_owned(), "for-downloads".to_owned(), HOST.parse().unwrap()));
    Api { dir, state: ApiState { queue, access } }
}

async fn answer(router: Router, request: Request<Body>) -> (StatusCode, Value) {
    let response = router.oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let value =
        serde_json::from_slice(&body).unwrap_or_else(|_| String::from_utf8_lossy(&body).into_owned().into());
    (status, value)
}

impl Api {
    async fn get(&self, path: &str) -> (StatusCode, Value) {
        self.send(Method::GET, path, Value::Null).await
    }

    async fn post(&self, body: Value) -> (StatusCode, Value) {
        self.send(Method::POST, TRANSFERS, body).await
    }

    async fn post_as(&self, kind: &str, body: &'static str) -> (StatusCode, Value) {
        let request = Request::builder().method(Method::POST).uri(TRANSFERS).header("content-type", kind);
        answer(unix(self.state.clone()), request.body(Body::from(body)).unwrap()).await
    }

    async fn send(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
        answer(unix(self.state.clone()), request.body(Body::from(body.to_string())).unwrap()).await
    }

    async fn add(&self, body: Value) -> i64 {
        let (status, added) = self.post(body).await;
        assert_eq!(status, StatusCode::CREATED, "{added}");
        added["transfers"][0]["id"].as_i64().unwrap()
    }

    async fn loopback(&self, path: &str, headers: &[(&str, &str)]) -> StatusCode {
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        loopback(self.state.clone(), false).oneshot(request).await.unwrap().status()
    }
}

#[tokio::test]
async fn loopback_needs_token_host_and_no_foreign_origin() {
    let api = api();
    let (host, token) = (("host", HOST), ("authorization", "Bearer the-token"));
    let path = "/api/v1/stats";
    for (headers, status) in [
        (vec![host, token], 200),
        (vec![("host", "localhost:6777"), token], 200),
        (vec![host, token, ("origin", "http://127.0.0.1:6777")], 200),
        (vec![host, token, ("origin", "http://localhost:6777")], 200),
        (vec![host], 401),
        (vec![host, ("authorization", "Bearer wrong")], 401),
        (vec![host, ("authorization", "Basic the-token")], 401),
        (vec![host, ("authorization", "the-token")], 401),
        (vec![host, ("cookie", "longhaul_session=the-token")], 401),
        (vec![token], 421),
        (vec![("host", "attacker.example:6777"), token], 421),
        (vec![("host", "127.0.0.1:80"), token], 421),
        (vec![("host", "127.0.0.1"), token], 421),
        (vec![host, host, token], 421),
        (vec![host, token, ("origin", "http://attacker.example")], 403),
        (vec![host, token, ("origin", "https://127.0.0.1:6777")], 403),
        (vec![host, token, ("origin", "http://127.0.0.1:8080")], 403),
        (vec![host, token, ("origin", "null")], 403),
    ] {
        assert_eq!(api.loopback(path, &headers).await.as_u16(), status, "{headers:?}");
    }
    let page = api.state.access.page();
    for path in ["/metrics", "/api/v1/openapi.json", "/api/v1/events", "/nothing", "/jsonrpc"] {
        for path in [path, &format!("{page}{path}")] {
            assert_eq!(api.loopback(path, &[host]).await, StatusCode::UNAUTHORIZED, "{path}");
        }
    }
    // The dashboard's page contains no data.
    for path in ["/", &format!("{page}/")] {
        assert_eq!(api.loopback(path, &[host]).await, StatusCode::OK);
    }
    assert_eq!(api.loopback("/", &[("host", "attacker.example")]).await, StatusCode::MISDIRECTED_REQUEST);
    // At this address the token is not disclosed.
    assert_eq!(api.loopback("/api/v1/login", &[host, token]).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn login_sets_a_valid_cookie() {
    let api = api();
    let login = |query: &str| {
        Request::builder().uri(format!("/login?{query}")).header("host", HOST).body(Body::empty()).unwrap()
    };
    let url = api.send(Method::GET, "/api/v1/login", Value::Null).await.1["url"].as_str().unwrap().to_owned();
    let code = url.strip_prefix(&format!("http://{HOST}/login?")).unwrap();
    assert!(!code.contains(TOKEN));
    for (query, status) in [
        ("", StatusCode::UNAUTHORIZED),
        ("token=wrong", StatusCode::UNAUTHORIZED),
        ("code=the-token", StatusCode::UNAUTHORIZED),
        (code, StatusCode::SEE_OTHER),
    ] {
        let answered = loopback(api.state.clone(), false).oneshot(login(query)).await.unwrap();
        assert_eq!(answered.status(), status, "{query}");
    }
    let response = loopback(api.state.clone(), false).oneshot(login("token=the-token")).await.unwrap();
    let page = response.headers()["location"].to_str().unwrap().to_owned();
    assert!(response.status() == 303 && page.len() > 32 && page.ends_with('/') && !page.contains(TOKEN));
    let cookie = response.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(TOKEN));
    // Servers on other ports of this host get no cookie: they do not know the path.
    assert!(cookie.ends_with(&format!("; Path={page}")), "{cookie}");
    let pair = format!("other=1; {}", cookie.split(';').next().unwrap());
    assert!(!pair.contains(page.split('/').nth(2).unwrap()), "{pair}");
    let stats = format!("{page}api/v1/stats");
    assert_eq!(api.loopback(&stats, &[("host", HOST), ("cookie", &pair)]).await, StatusCode::OK);
}

#[tokio::test]
async fn bad_requests_are_refused_and_change_nothing() {
    let api = api();
    for body in [
        json!({}),
        json!({ "urls": "http://h/secret" }),
        json!({ "urls_text": "http://h/a\nsecret" }),
        json!({ "urls_text": "" }),
        json!([]),
    ] {
        let (status, answer) = api.post(body.clone()).await;
        assert_eq!((status.as_u16(), &answer["error"]["code"]), (400, &json!("invalid")), "{body}");
        assert!(!answer.to_string().contains("secret"), "{answer}");
    }
    let (status, _) = api.post_as("text/plain", r#"{"urls":["http://h/"]}"#).await;
    assert_eq!(status, StatusCode::UNSUPPORTED_MEDIA_TYPE);
    for path in ["/api/v1/transfers?state=odd", "/api/v1/transfers?after=odd"] {
        assert_eq!(api.get(path).await.0, StatusCode::BAD_REQUEST, "{path}");
    }
    assert_eq!(api.get(TRANSFERS).await.1["total"], 0);
    let id = api.add(json!({ "urls": ["http://h/a.iso"] })).await;
    for (method, path, status) in [
        (Method::POST, "/retry", 409),
        (Method::DELETE, "", 409),
        (Method::POST, "/move", 404),
        (Method::POST, "/cancel", 200),
        (Method::POST, "/pause", 409),
        (Method::DELETE, "", 204),
        (Method::GET, "", 404),
        (Method::PUT, "", 405),
    ] {
        let path = format!("{TRANSFERS}/{id}{path}");
        let (answered, body) = api.send(method, &path, json!({ "before": 99 })).await;
        assert_eq!(answered.as_u16(), status, "{path}: {body}");
    }
}

#[tokio::test]
async fn secrets_are_not_in_answers_or_files() {
    let api = api();
    let request = json!({
        "urls": ["https://user:hunter2@h/a?sig=hunter2"], "headers": ["Authorization: Basic hunter2"], "cookies": "id=hunter2",
        "token": "hunter2", "paused": true
    });
    let id = api.add(request).await;
    let fresh = json!({ "url": "https://h/b?sig=hunter2", "headers": ["X: hunter2"] });
    api.send(Method::POST, &format!("/api/v1/transfers/{id}/refresh"), fresh).await;
    for path in ["/api/v1/transfers", &format!("/api/v1/transfers/{id}"), "/metrics", "/api/v1/settings"] {
        let (status, answer) = api.get(path).await;
        assert!(status.is_success() && !answer.to_string().contains("hunter2"), "{path}: {answer}");
    }
    for entry in std::fs::read_dir(api.dir.path().join("state")).unwrap() {
        let path = entry.unwrap().path();
        let bytes = if path.is_file() { std::fs::read(&path).unwrap() } else { Vec::new() };
        assert!(!bytes.windows(7).any(|window| window == b"hunter2"), "{}", path.display());
    }
    let kept = api.state.queue.request(id).unwrap();
    assert_eq!(
        (kept.endpoints.urls[0].as_str(), kept.access.headers[0].as_str()),
        ("https://h/b?sig=hunter2", "X: hunter2")
    );
}

#[tokio::test]
async fn lines_metalinks_and_arrays_become_transfers() {
    let api = api();
    let metalink = r#"<metalink xmlns="urn:ietf:params:xml:ns:metalink"><file name="f.iso"><url>http://h/f</url></file></metalink>"#;
    let (status, added) = api.post_as("application/metalink4+xml", metalink).await;
    assert_eq!((status, &added["transfers"][0]["name"]), (StatusCode::CREATED, &json!("f.iso")));
    let api = self::api();
    let total = async || api.get(TRANSFERS).await.1["total"].clone();
    let bad = json!([{ "urls": ["http://h/a"] }, { "urls": ["no url"] }]);
    assert_eq!(api.post(bad).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(total().await, 0);
    let good = json!([{ "urls": ["http://h/a"], "key": "k-0" }, { "urls": ["http://h/b"], "key": "k-1" }]);
    for _ in 0..2 {
        let (status, added) = api.post(good.clone()).await;
        assert_eq!((status, added["transfers"].as_array().map(Vec::len)), (StatusCode::CREATED, Some(2)));
    }
    assert_eq!(total().await, 2);
}

#[tokio::test]
async fn settings_are_stored_unless_invalid_and_a_full_disk_refuses_all_additions() {
    let api = api();
    let schedule = json!([{ "days": "mon-fri", "from": "08:00", "to": "18:00", "limit_bps": 1_000_000, "concurrent": 1 }]);
    let patch = async |settings| api.send(Method::PATCH, "/api/v1/settings", settings).await.0;
    assert_eq!(patch(json!({ "concurrent": 5, "schedule": schedule })).await, StatusCode::OK);
    assert_eq!(patch(json!({ "concurrent": 0 })).await, StatusCode::BAD_REQUEST);
    let again = Queue::open(api.state.queue.paths.clone(), |_| 1, None).unwrap();
    assert_eq!((again.settings().concurrent, again.settings().schedule.len()), (5, 1));
    // The default can change, as with the user's directories.
    assert_eq!(again.database(|database| database.settings().unwrap().directory), None);
    api.add(json!({ "urls": ["http://h/kept"] })).await;
    api.state.queue.database(|database| database.limit_pages(database.pages() + 2));
    let large = format!("http://h/{}", "a".repeat(100_000));
    let (status, full) = api.post(json!([{ "urls": ["http://h/a"] }, { "urls": [large] }])).await;
    assert_eq!((status.as_u16(), &full["error"]["code"]), (507, &json!("disk-full")), "{full}");
    assert_eq!(api.get(TRANSFERS).await.1["total"], 1, "all or none");
}

#[tokio::test]
async fn description_covers_every_path_and_metrics_use_the_text_format() {
    let api = api();
    let (_, description) = api.send(Method::GET, "/api/v1/openapi.json", json!({})).await;
    let paths = description["paths"].as_object().unwrap();
    let of_transfers = ["transfers", "transfers/{id}", "transfers/{id}/pause", "transfers/{id}/refresh"];
    for path in of_transfers.into_iter().chain(["settings", "events"]) {
        assert!(paths.contains_key(&format!("/api/v1/{path}")), "{path}");
    }
    let schemas = &description["components"]["schemas"];
    let request = &schemas["TransferRequest"];
    assert_eq!((&request["additionalProperties"], request.get("allOf")), (&json!(false), None), "{request}");
    let names = |object: &Value| object.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let mut request_of_plan = crate::request::TransferRequest::default();
    request_of_plan.endpoints.plan = Some("/p".into());
    let written = serde_json::to_value(request_of_plan).unwrap();
    assert_eq!(names(&request["properties"]), names(&written));
    assert!(schemas.get("QueueOptions").is_none(), "a group is no type of the API");
    let streams = &schemas["StreamsSetting"]["oneOf"][1];
    assert_eq!((&streams["minimum"], &streams["maximum"]), (&json!(1), &json!(256)));
    let refused = async |method, path: &str, body| {
        let (status, error) = api.send(method, path, body).await;
        assert_eq!((status.as_u16(), &error["error"]["code"]), (400, &json!("invalid")), "{path} {error}");
    };
    let mut checked = Vec::new();
    for (schema, path) in [("TransferRequest", TRANSFERS), ("SettingsPatch", "/api/v1/settings")] {
        for (name, property) in schemas[schema]["properties"].as_object().unwrap() {
            for (bound, step) in [("minimum", -1), ("maximum", 1)] {
                let Some(bound) = property[bound].as_i64() else { continue };
                let (method, urls) =
                    if path == TRANSFERS { (Method::POST, "urls") } else { (Method::PATCH, &**name) };
                refused(method, path, json!({ urls: ["http://h/a"], name: bound + step })).await;
                checked.push((&**name, bound));
            }
        }
    }
    checked.sort_unstable();
    let bounds = [
        ("concurrent", 1),
        ("concurrent", 64),
        ("limit_bps", 8),
        ("limit_bps", 8),
        ("priority", -1_000_000),
        ("priority", 1_000_000),
        ("retries", 0),
    ];
    assert_eq!(checked, bounds);
    for bound in [1, 64] {
        let (status, settings) =
            api.send(Method::PATCH, "/api/v1/settings", json!({ "concurrent": bound })).await;
        assert_eq!((status.as_u16(), &settings["concurrent"]), (200, &json!(bound)));
    }
    assert_eq!(schemas["TransferRequest"]["properties"]["urls"]["maxItems"], 16);
    let mirrors = |count: usize| json!({ "urls": vec!["http://h/a"; count], "paused": true });
    assert_eq!(api.post(mirrors(16)).await.0, StatusCode::CREATED);
    refused(Method::POST, TRANSFERS, mirrors(17)).await;
    for path in ["?limit=0", "?limit=1001", "?limit=-1", "/x", "/1/samples?since=x"] {
        refused(Method::GET, &format!("{TRANSFERS}{path}"), json!({})).await;
    }
    let (_, metrics) = api.send(Method::GET, "/metrics", json!({})).await;
    let metrics = metrics.as_str().unwrap();
    assert!(metrics.contains("\nlonghaul_transfers{state=\"paused\"} 1\n"), "{metrics}");
    let is_sample = |line: &str| line.rsplit_once(' ').is_some_and(|(_, value)| value.parse::<f64>().is_ok());
    assert!(metrics.lines().all(|line| line.starts_with("# ") || is_sample(line)), "{metrics}");
}
