#!/bin/sh
# A purge removes the content of the API, the keys and the kubeconfigs.
set -e
if [ "$1" = purge ]; then
  rm -rf /var/lib/berth-apiserver
fi
if [ -d /run/systemd/system ]; then
  systemctl daemon-reload || :
fi
