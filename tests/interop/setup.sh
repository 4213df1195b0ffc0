#!/bin/sh
# Installs what the interoperability tests need: Debian packages, the npm packages of the JavaScript clients and
# examples, and the Maven artifacts of the Java client, which it compiles. Does only what is not done yet.
#
# A part that cannot be installed is named; its tests then skip. With CI set, that is a failure instead.
set -eu
cd "$(dirname "$0")/../.."

missing=
lacks() {
    echo "interop: $1"
    missing="$missing $2"
}

# --- Debian packages -------------------------------------------------------------------------------------------------

wanted=
for package in ruby-stomp libnet-stomp-perl chromium; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || wanted="$wanted $package"
done
if [ -n "$wanted" ]; then
    if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
        echo "interop: installing Debian packages:$wanted"
        export DEBIAN_FRONTEND=noninteractive
        # shellcheck disable=SC2086  # one argument a package
        { apt-get -qq update && apt-get -qq install -y --no-install-recommends $wanted >/dev/null; } ||
            lacks "apt-get failed" "$wanted"
    else
        lacks "not root on Debian; install by hand:$wanted" "$wanted"
    fi
fi

# --- npm packages ----------------------------------------------------------------------------------------------------

for folder in tests/interop/js examples/js; do
    installed="$folder/node_modules/.stompica-lock.json"
    cmp -s "$folder/package-lock.json" "$installed" && continue
    if command -v npm >/dev/null; then
        echo "interop: npm ci in $folder"
        if (cd "$folder" && npm ci --ignore-scripts --no-audit --no-fund --silent); then
            cp "$folder/package-lock.json" "$installed"
        else
            lacks "npm ci failed in $folder" "$folder"
        fi
    else
        lacks "no npm" "$folder"
    fi
done

# --- Maven artifacts, and the Java client compiled -------------------------------------------------------------------

java=tests/interop/java
built=$java/target/classpath.txt
# Current: newer than all it is made of, and the artifacts it names are still there.
if [ ! -e "$built" ] || [ -n "$(find $java/pom.xml $java/src -newer "$built")" ] || [ ! -e "$(cut -d: -f1 "$built")" ]; then
    if command -v mvn >/dev/null; then
        echo "interop: Maven artifacts, and compiling $java"
        if output=$(mvn -B -q -f $java/pom.xml process-classes 2>&1); then
            touch "$built"
        else
            echo "$output" >&2
            lacks "Maven failed" $java
        fi
    else
        lacks "no mvn" $java
    fi
fi

if [ -z "$missing" ]; then
    echo "interop: ready"
else
    echo "interop: not there, and skipped by the tests:$missing" >&2
    [ -z "${CI:-}" ] || exit 1
fi
