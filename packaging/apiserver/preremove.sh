#!/bin/sh
# A removal stops the server. The agent goes on running its pods, and the data directory stays.
set -e
case $1 in
  remove | 0) ;; # dpkg, rpm
  *) exit 0 ;;   # an upgrade
esac
if [ -d /run/systemd/system ]; then
  systemctl disable --now --quiet berth-apiserver.service || :
fi
