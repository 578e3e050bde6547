use super::*;

fn shown(client: BenchClient) -> String {
    client.shown(Bytes::gib(8))
}

#[test]
fn longhaul_fetches_store_no_state() {
    let streams = [Streams::Auto, Streams::Fixed(1), Streams::Fixed(20), Streams::Apt];
    let kinds = [BenchClient::Streams, BenchClient::SmallSockets, BenchClient::GridFtp];
    let ours = kinds.into_iter().flat_map(|client| streams.map(client));
    let others = [
        BenchClient::GridFtpEach,
        BenchClient::GetEach,
        BenchClient::GetFromServe,
        BenchClient::PutDefault,
        BenchClient::Writer("mmap"),
        BenchClient::Served(Pace::Auto),
        BenchClient::PutPaced(Pace::Off),
    ];
    for client in ours.chain(others) {
        let command = shown(client);
        assert!(command.contains(" --no-memory ") && command.contains(" --no-resume "), "{command}");
    }
}

#[test]
fn the_papers_sockets_are_the_scenarios() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scenarios/apt-background.toml");
    let toml = std::fs::read_to_string(file).unwrap();
    assert_eq!(toml.matches(&format!("{SMALL_BUFFER} --")).count(), 2);
    assert_eq!(
        shown(BenchClient::SmallSockets(Streams::Apt)),
        "longhaul get --json --no-resume --no-memory --tuner apt --pace off --recv-buffer 51KiB -o FILE http://SERVER/FILE"
    );
}

#[test]
fn globus_lists_the_same_files() {
    assert_eq!(shown(BenchClient::UrlCopy(4)), "globus-url-copy -p 4 ftp://SERVER/DIR/FILE file:///FILE");
    assert!(shown(BenchClient::GridFtp(Streams::Auto)).ends_with(" -o FILE ftp://SERVER/DIR/FILE"));
    let paths = ["/s/0001".to_owned(), "/s/0002".to_owned()];
    let words = CommandWords {
        longhaul: "",
        bench: "",
        server: "h:1",
        source: "",
        paths: &paths,
        root: "/www",
        list: "",
        file: "/copies",
        record: "",
        token: "",
        size: Bytes::ZERO,
    };
    assert_eq!(
        BenchClient::UrlCopyList.list(&words),
        "ftp://h:1/www/s/0001 file:///copies/0001\nftp://h:1/www/s/0002 file:///copies/0002\n"
    );
    assert_eq!(BenchClient::Aria2List.list(&words), "http://h:1/s/0001\nhttp://h:1/s/0002\n");
}
