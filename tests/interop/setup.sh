#!/bin/sh
# Installs what the interoperability tests need: Debian packages, the npm packages of the JavaScript clients and
# examples, the Maven artifacts of the Java client, which it compiles, and stompest in an environment of its own. Does
# only what is not done yet.
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

# --- stompest, for a Python of its days if there is one --------------------------------------------------------------

stompest=tests/interop/stompest
version=2.3.0
old_python() {
    for candidate in python3.8 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.8.*/bin/python python3.9 python3.10 python3; do
        "$candidate" -c 'import venv' 2>/dev/null && command -v "$candidate" && return
    done
}
if [ "$(cat $stompest/.venv/installed 2>/dev/null)" != "$version" ]; then
    if python=$(old_python); then
        echo "interop: stompest $version for $("$python" --version)"
        rm -rf $stompest/.venv
        if "$python" -m venv $stompest/.venv &&
            $stompest/.venv/bin/python -m pip install --quiet --disable-pip-version-check --use-pep517 "stompest==$version"; then
            echo '*' >$stompest/.venv/.gitignore
            echo "$version" >$stompest/.venv/installed
        else
            lacks "pip install stompest failed" $stompest
        fi
    else
        lacks "no Python with venv" $stompest
    fi
fi

if [ -z "$missing" ]; then
    echo "interop: ready"
else
    echo "interop: not there, and skipped by the tests:$missing" >&2
    [ -z "${CI:-}" ] || exit 1
fi
