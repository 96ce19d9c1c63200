#!/bin/sh
# Removal stops the agent. Pods go on running: "berth drain --stop" before the removal stops them, too, and so does a purge.
set -e
case $1 in
  remove | 0) ;; # dpkg, rpm
  *) exit 0 ;;   # an upgrade
esac
if [ -d /run/systemd/system ]; then
  systemctl disable --now --quiet berth.service || :
fi
# A purge comes when the program and the config files are gone, and needs them to stop the pods.
if [ "$1" = remove ]; then
  rm -rf /var/lib/berth/purge
  mkdir -p /var/lib/berth/purge
  ln /usr/bin/berth /var/lib/berth/purge/berth 2>/dev/null || cp -p /usr/bin/berth /var/lib/berth/purge/berth
  cp -a /etc/berth /var/lib/berth/purge/etc
fi
