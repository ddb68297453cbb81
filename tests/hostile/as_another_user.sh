#!/usr/bin/env bash
# as_another_user.sh PROGRAM [ARGUMENT...]: root runs a program of tests as a user without rights,
# with a home and a folder of temporary files that belong to that user.
set -euo pipefail

user=65534
skipped=77 # SKIP_RETURN_CODE of the test

skip() {
  printf '%s\n' "$1"
  exit "$skipped"
}

[[ $(id -u) == 0 ]] || skip "the tests run as user $(id -u): only root can run them as another one"
as_user=(setpriv --reuid "$user" --regid "$user" --clear-groups)
"${as_user[@]}" true || skip "changing the user is not permitted here"

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/home" "$folder/tmp"
chown -R "$user:$user" "$folder"
for path in "$1" "$folder/tmp"; do
  "${as_user[@]}" test -x "$path" || skip "user $user may not enter all folders above $path"
done

cd "$folder"
"${as_user[@]}" env -u XDG_CACHE_HOME HOME="$folder/home" TMPDIR="$folder/tmp" "$@"
