#!/bin/sh
# A first installation starts nothing. An upgrade restarts the agent if it runs, and no container.
set -e
upgrade=
case $1 in
  configure) [ -z "$2" ] || upgrade=yes ;; # dpkg: $2 is the version configured before
  [0-9]*) [ "$1" -lt 2 ] || upgrade=yes ;; # rpm: $1 is how many versions are installed now
esac
# If there is no network for the pods, install one. Its name sorts after all others, so a network that
# is added later replaces it.
if [ -z "$upgrade" ] && ! ls /etc/cni/net.d/*.conf /etc/cni/net.d/*.conflist >/dev/null 2>&1; then
  mkdir -p /etc/cni/net.d
  cp /usr/share/berth/zz-berth.conflist /etc/cni/net.d/
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  if [ -n "$upgrade" ]; then
    systemctl try-restart berth.service
  fi
fi
