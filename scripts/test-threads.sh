#!/usr/bin/env bash
# Runs a test program for cargo. Those whose tests mostly wait, for servers, timeouts and limited rates, get three threads a core;
# those that compute or compare times keep one.
case ${1##*/} in
    agent-* | get-* | gridftp* | jobs-* | put-* | serve-* | trees-*) export RUST_TEST_THREADS=$((3 * $(nproc))) ;;
esac
exec "$@"
