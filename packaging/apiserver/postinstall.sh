#!/bin/sh
# A first installation starts nothing. An upgrade restarts the server if it runs.
set -e
upgrade=
case $1 in
  configure) [ -z "$2" ] || upgrade=yes ;; # dpkg: $2 is the version configured before
  [0-9]*) [ "$1" -lt 2 ] || upgrade=yes ;; # rpm: $1 is how many versions are installed now
esac
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload
  if [ -n "$upgrade" ]; then
    systemctl try-restart berth-apiserver.service
  fi
fi
