#!/bin/sh
# Make the group whose members may use the agent's socket.
set -e
if ! getent group berth >/dev/null; then
  groupadd --system berth
fi
