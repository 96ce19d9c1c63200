#!/bin/sh
# A purge first stops the pods, and then removes everything of berth. It does not remove manifests, or
# images in the runtime's store, because they are not berth's.
set -e
kept=/var/lib/berth/purge
network=/etc/cni/net.d/zz-berth.conflist
logind=/etc/systemd/logind.conf.d/99-kubelet.conf
if [ "$1" = purge ]; then
  if [ -x $kept/berth ]; then
    [ ! -e $kept/etc/config.yaml ] || set -- "$@" --config $kept/etc/config.yaml
    [ ! -d $kept/etc/config.d ] || set -- "$@" --config-dir $kept/etc/config.d
    $kept/berth "$@" --yes || echo "berth: something of its pods is left, see above" >&2
  fi
  if [ -e $network ]; then
    rm -f $network
    ip link delete berth0 2>/dev/null || :
    rm -rf /var/lib/cni/networks/berth
    rmdir /var/lib/cni/networks /var/lib/cni 2>/dev/null || :
  fi
  # A kubelet has a file of this name, too.
  ! grep -q '^# Written by berth' $logind 2>/dev/null || rm -f $logind
  rm -rf /etc/berth /var/lib/berth /run/berth
  # Another agent of this machine may hold locks.
  for lock in /run/berth-locks/*; do
    [ ! -e "$lock" ] || flock -n "$lock" rm -f "$lock" || :
  done
  rmdir /run/berth-locks 2>/dev/null || :
  ! getent group berth >/dev/null || groupdel berth || :
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || :
fi
