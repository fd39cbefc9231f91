#!/bin/sh
# with_server.sh SERVER PROGRAM [ARGUMENT...]: runs PROGRAM with GIMBAL_SOCKET and GIMBAL_TCP set to a fresh fixture server,
# whose API key is "the key" and whose admin token is "the token". Ends with the program's exit code, or the server's fault.
server=$1
shift
dir=$(mktemp -d) || exit 1
trap 'kill "$pid" 2>/dev/null; rm -rf "$dir"' EXIT
"$server" "$dir/socket" "$dir/port" "the key" &
pid=$!
while [ ! -s "$dir/port" ]; do
    kill -0 "$pid" 2>/dev/null || exit 1
    sleep 0.02
done
GIMBAL_SOCKET=$dir/socket GIMBAL_TCP=127.0.0.1:$(cat "$dir/port") "$@"
status=$?
if [ "$status" -eq 0 ]; then wait "$pid" || { echo "the server ended with $?"; exit 1; }; fi    # the program has called shutdown
exit "$status"
