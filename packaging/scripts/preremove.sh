#!/bin/sh
# A removal stops the agent; pods continue to run. A purge stops the pods, too, and so does
# "berth drain --stop" before the removal.
set -e
case $1 in
  remove | 0) ;; # dpkg, rpm
  *) exit 0 ;;   # an upgrade
esac
if [ -d /run/systemd/system ]; then
  systemctl disable --now --quiet berth.service || :
fi
# A purge runs after the program and the config files were removed, but needs them to stop the pods.
# So keep copies of them.
if [ "$1" = remove ]; then
  rm -rf /var/lib/berth/purge
  mkdir -p /var/lib/berth/purge
  ln /usr/bin/berth /var/lib/berth/purge/berth 2>/dev/null || cp -p /usr/bin/berth /var/lib/berth/purge/berth
  cp -a /etc/berth /var/lib/berth/purge/etc
fi
