#!/usr/bin/env bash
# What a container does:
#   worker             wait for ranks: an ssh server on a port of its own, in the foreground
#   master COMMAND …   run a command that starts ranks on the workers, by ssh
#   COMMAND …          run a command on this machine alone
#
# RINGLET_KEYS      folder with the key of the cluster (default: /run/secrets). Workers need `authorized_keys` or a
#                   public key, *.pub; the master needs the private key: id_ed25519, id_ecdsa or id_rsa
# RINGLET_SSH_PORT  port of the ssh servers (default: 2222), the same for workers and master
set -euo pipefail
umask 077
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
keys=${RINGLET_KEYS:-/run/secrets}
port=${RINGLET_SSH_PORT:-2222}
folder=$HOME/.ssh

fail() {
    echo "ringlet container: $*" >&2
    exit 2
}

# Keys are copied, since ssh wants them to be the user's own and closed to others, which mounted secrets seldom are.
install_public_key() {
    local found=()
    if [ -r "$keys/authorized_keys" ]; then
        found=("$keys/authorized_keys")
    else
        mapfile -t found < <(find "$keys" -maxdepth 1 -name '*.pub' -readable 2> /dev/null | sort)
    fi
    [ "${#found[@]}" -gt 0 ] || fail "no public key in $keys that can be read: mount authorized_keys or a file *.pub there"
    cat -- "${found[@]}" > "$folder/authorized_keys"
}

install_private_key() {
    local name
    for name in id_ed25519 id_ecdsa id_rsa; do
        if [ -r "$keys/$name" ]; then
            rm -f "$folder/identity"
            cat -- "$keys/$name" > "$folder/identity"
            return
        fi
    done
    fail "no private key in $keys that can be read: mount id_ed25519, id_ecdsa or id_rsa there"
}

run_worker() {
    install_public_key
    # The container's own key, made when it first starts: an image would give the same one to everybody.
    [ -e "$folder/host_key" ] || ssh-keygen -q -t ed25519 -N '' -C "$(uname -n)" -f "$folder/host_key"
    exec /usr/sbin/sshd -D -e -f "$here/sshd_config" -h "$folder/host_key" -p "$port"
}

run_master() {
    [ "$#" -gt 0 ] || fail 'master needs a command, such as: master ringlet train -n 2 --hostfile hostfile'
    install_private_key
    # ssh takes the first value it reads.
    { echo "Port $port" && cat -- "$here/ssh_config"; } > "$folder/config"
    exec "$@"
}

[[ $port =~ ^[0-9]{1,5}$ ]] || fail "RINGLET_SSH_PORT is '$port': expected a number"
mkdir -p "$folder"
case ${1:-} in
    worker) run_worker ;;
    master) run_master "${@:2}" ;;
    '') fail 'nothing to do: expected worker, master COMMAND … or a command' ;;
    *) exec "$@" ;;
esac
