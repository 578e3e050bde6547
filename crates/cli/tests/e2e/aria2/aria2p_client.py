"""Drives the agent by aria2p, a client of aria2's JSON-RPC: PORT TOKEN URL DIRECTORY of the file that URL names."""

import os
import sys
import time
import traceback

import aria2p

PATIENCE_S = 60


def until(what, test):
    """Waits until `test` returns a true value."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = test()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"waited {PATIENCE_S} s for {what}")


def main(port, token, url, directory):
    client = aria2p.Client(host="http://127.0.0.1", port=int(port), secret=token)
    api = aria2p.API(client)

    assert client.get_version()["version"].startswith("1."), "the version"
    assert "aria2.addUri" in client.list_methods()
    refused = aria2p.Client(host="http://127.0.0.1", port=int(port), secret="wrong")
    try:
        refused.get_version()
        raise AssertionError("a wrong token was accepted")
    except aria2p.ClientException as error:
        assert "Unauthorized" in str(error)

    heard = []
    note = lambda kind: lambda _api, gid: heard.append((kind, gid))
    api.listen_to_notifications(
        threaded=True, on_download_start=note("start"), on_download_pause=note("pause"), on_download_stop=note("stop"),
        on_download_complete=note("complete"), on_download_error=note("error"), timeout=1, handle_signals=False,
    )
    time.sleep(0.5)

    # A limit of 4 MiB a second: slow enough to be paused.
    slow = api.add_uris([url], options={"dir": directory, "out": "slow.bin", "max-download-limit": "4M", "split": "1"})
    assert len(slow.gid) == 16 and api.get_download(slow.gid).gid == slow.gid
    until("its start", lambda: api.get_download(slow.gid).is_active)
    until("bytes", lambda: api.get_download(slow.gid).completed_length > 0)
    assert api.get_stats().num_active == 1
    assert [download.gid for download in api.get_downloads()] == [slow.gid]
    assert api.pause([slow]) == [True]
    until("its pause", lambda: api.get_download(slow.gid).is_paused)
    assert client.tell_waiting(0, 10)[0]["gid"] == slow.gid

    # Two that wait: their order can be changed.
    first = api.add_uris([url], options={"dir": directory, "out": "first.bin", "pause": "true"})
    second = api.add_uris([url], options={"dir": directory, "out": "second.bin", "pause": "true"})
    order = lambda: [told["gid"] for told in client.tell_waiting(0, 10, ["gid"])]
    assert order() == [slow.gid, first.gid, second.gid], order()
    assert api.move_to_top(second) == 0
    assert order() == [second.gid, slow.gid, first.gid], order()
    assert client.tell_waiting(-1, 2, ["gid"]) == [{"gid": first.gid}, {"gid": slow.gid}]

    assert client.change_option(slow.gid, {"max-download-limit": "0"}) == "OK"
    assert api.resume([slow]) == [True]
    done = until("its end", lambda: next((d for d in [api.get_download(slow.gid)] if d.is_complete), None))
    assert done.progress == 100 and str(done.files[0].path).endswith("slow.bin")

    failed = api.add_uris([url + ".missing"], options={"dir": directory})
    until("the error", lambda: api.get_download(failed.gid).has_failed)
    assert api.get_download(failed.gid).error_message
    assert client.remove(first.gid) == first.gid
    until("the removal", lambda: api.get_download(first.gid).is_removed)
    assert client.remove_download_result(first.gid) == "OK"

    assert api.set_global_options({"max-concurrent-downloads": "2", "max-overall-download-limit": "100M"})
    options = api.get_global_options()
    assert options.max_concurrent_downloads == 2 and options.max_overall_download_limit == 100 * 2**20
    told = client.batch_call([(client.GET_VERSION, [], "1"), (client.TELL_STATUS, [slow.gid, ["status"]], "2")])
    assert told[1] == {"status": "complete"}, told
    told = client.multicall2([(client.GET_GLOBAL_STAT, []), (client.TELL_STATUS, ["000000000000ffff"])])
    assert told[0][0]["numActive"] == "0" and "is not found" in told[1]["message"], told

    until("the notifications", lambda: {("start", slow.gid), ("pause", slow.gid), ("complete", slow.gid), ("stop", first.gid),
                                        ("error", failed.gid)} <= set(heard))
    api.stop_listening()


try:
    main(*sys.argv[1:])
except BaseException:
    # The thread that listens would keep the process alive.
    traceback.print_exc()
    sys.stderr.flush()
    os._exit(1)
