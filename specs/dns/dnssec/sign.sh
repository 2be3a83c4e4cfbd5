#!/usr/bin/env bash
# Makes the signed zones of this folder anew, with BIND's tools (Debian: bind9-utils): ./sign.sh
# A root, the top-level domain `tld.` with NSEC3 and opt-out, and below it one zone for each algorithm and kind of denial. The tests play in
# January 2026; the signatures last from 2025 to 2050. Keys are thrown away, so all zones are signed together.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"

# sign ZONE FILE ALGORITHM [OPTION...]: signs $FILE as ZONE with one key, and leaves its DS set in dsset-ZONE.
sign() {
    local zone=$1 file=$2 algorithm=$3 size=()
    shift 3
    case $algorithm in *RSA*) size=(-b 1024) ;; esac
    local key
    key=$(dnssec-keygen -q -a "$algorithm" "${size[@]}" -f KSK "$zone")
    cat "$key.key" >>"$file"
    dnssec-signzone -q -z -P -O full -s 20250101000000 -e 20500101000000 -o "$zone" -f "$file.signed" "$@" \
        "$file" "$key" >/dev/null
    # One line a record, without what repeats.
    sed -E '/^;/d; s/[ \t]+/ /g; s/ IN / /' "$file.signed" >"$here/$file"
}

# content ZONE: what every zone has.
content() {
    cat <<EOF
\$TTL 300
@ SOA ns hostmaster 1 3600 900 86400 60
@ NS ns
@ NS ns2
@ MX 10 Mail
ns A $address
ns2 A ${address%.*}.$((${address##*.} + 100))
www A 192.0.2.80
alias CNAME www
away CNAME www.ecdsap256sha256-nsec.tld.
lost CNAME nothing
*.wild A 192.0.2.81
host.ent TXT "below an empty name"
dname DNAME www.ecdsap256sha256-nsec.tld.
unsigned NS ns.unsigned
ns.unsigned A $address
EOF
}

tld=$(cat <<'EOF'
$TTL 300
@ SOA ns hostmaster 1 3600 900 86400 60
@ NS ns
ns A 198.51.100.2
EOF
)
number=10

# zone NAME ALGORITHM [OPTION...]: a zone below tld.
zone() {
    local name=$1 algorithm=$2
    shift 2
    local address=198.51.100.$number
    number=$((number + 1))
    content >"$name.zone"
    sign "$name.tld." "$name.zone" "$algorithm" "$@"
    tld+=$'\n'"$name NS ns.$name
$name NS ns2.$name
ns.$name A $address
ns2.$name A ${address%.*}.$((${address##*.} + 100))
$(cat "dsset-$name.tld.")"
}

for algorithm in RSASHA256 RSASHA512 ECDSAP256SHA256 ECDSAP384SHA384 ED25519 ED448; do
    lower=$(tr '[:upper:]' '[:lower:]' <<<"$algorithm")
    zone "$lower-nsec" "$algorithm"
    zone "$lower-nsec3" "$algorithm" -3 -
done
zone rsasha1-nsec RSASHA1
zone rsasha1-nsec3 NSEC3RSASHA1 -3 aabb
zone salted ED25519 -3 0123456789abcdef -H 50
zone iterated ED25519 -3 - -H 51
zone optout ED25519 -3 - -A

tld+=$'\nplain NS ns.plain\nns.plain A 198.51.100.3'
printf '%s\n' "$tld" >tld.zone
sign tld. tld.zone RSASHA256 -3 - -A

cat >root.zone <<EOF
\$TTL 300
@ SOA a.root. hostmaster.root. 1 3600 900 86400 60
@ NS a.root.
a.root. A 198.51.100.1
tld. NS ns.tld.
ns.tld. A 198.51.100.2
plain. NS ns.plain.
ns.plain. A 198.51.100.3
$(cat dsset-tld.)
EOF
sign . root.zone ECDSAP256SHA256
echo "sign.sh: $(cd "$here" && ls ./*.zone | wc -l) zones, $(cat "$here"/*.zone | wc -c) octets"
